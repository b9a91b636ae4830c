from glidemq_async.executors.calls import FunctionCall as FunctionCall
from glidemq_async.executors.deadlines import waiting as waiting
from glidemq_async.executors.inline import InlineExecutor as InlineExecutor
from glidemq_async.executors.permissions import Permissions as Permissions
from glidemq_async.executors.protocol import Executor as Executor
from glidemq_async.executors.protocol import Handler as Handler
from glidemq_async.executors.subprocess import SubprocessExecutor as SubprocessExecutor
from glidemq_async.executors.thread import ThreadExecutor as ThreadExecutor
