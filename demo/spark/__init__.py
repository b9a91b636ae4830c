"""`glidemq pipeline demo`: a file of the interpreter is a job; Spark enqueues them all and tells what became of them.

command.py is the command, files.py the jobs and what must come of them, worker_process.py what a worker process runs,
driver.py what the process with Spark does, crew.py starts and kills them all, show.py leads the whole.
"""
