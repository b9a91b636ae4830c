"""The command `glidemq doctor`: what could keep jobs from being safe or fast on this machine and its servers.

command: the options and the report. machine: the checks of this process. server: those of each server.
library: which function library a server has. check: one finding.
"""
