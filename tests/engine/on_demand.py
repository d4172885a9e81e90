"""What a test and the engine that it started agree on; imports nothing, as both sides need it."""

FAULT_FILE = "EACTL_TEST_FAULT_FILE"  # a file that holds the hook which is to fail, while it exists
PINS_FILE = "EACTL_TEST_PINS_FILE"  # where an in-process worker writes the time and how many chunks are pinned
HOOKS = ("resolved", "loading", "started", "stepped", "finished")  # of the gate; every request passes through them
