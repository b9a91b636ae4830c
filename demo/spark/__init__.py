"""`glidemq pipeline demo`: Spark adds one job for each file of the interpreter and reports on the jobs."""

# command            the options of the command
# demonstration      the course of a run: it starts the processes, kills some of them, and compares the figures
# files              the jobs, and the figures that they must have
# worker_process     the program of a worker process
# driver             the program of the process with Spark
# child_process      starts and kills these processes
