from glidemq_async.workflows.replies import reply as reply
from glidemq_async.workflows.values import now as now
from glidemq_async.workflows.values import random as random
from glidemq_async.workflows.values import uuid4 as uuid4
from glidemq_async.workflows.waits import receive as receive
from glidemq_async.workflows.waits import sleep as sleep
