"""The command `glidemq doctor`: checks of this machine and its servers for anything that makes jobs unsafe or slow.

`command` has the options and the report, `machine` the checks of this process, `server` the checks of each server,
`library` the check of the function library, and `check` the type of a finding.
"""
