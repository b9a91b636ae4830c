"""`glidemq demo`: run a job for each Python file of a directory, kill a worker halfway through, and count lost jobs."""

# command            the options of the command
# demonstration      the course of a run: it adds the jobs, starts the workers, kills one and audits the result
# measure, sources   the job, which parses and measures one file, and the search for files
# worker_process     the program of a worker process; worker_processes starts and kills these processes
# demo_store         the server of the run, and the deletion of its data
# event_counts       counts ended jobs by the events of the queue; audit counts them by the stored jobs
# display, report    the progress and the result as text
