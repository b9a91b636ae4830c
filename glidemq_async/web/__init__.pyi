from glidemq_async.ops.access import AccessDenied as AccessDenied
from glidemq_async.ops.access import Identity as Identity
from glidemq_async.ops.access import Role as Role
from glidemq_async.web.app import operations_app as operations_app
from glidemq_async.web.app import running as running
from glidemq_async.web.settings import Access as Access
from glidemq_async.web.settings import ProxyUsers as ProxyUsers
from glidemq_async.web.settings import WebLimits as WebLimits
