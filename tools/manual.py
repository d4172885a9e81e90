"""What the pages say that no ``--help`` holds: exit statuses, environment variables, files."""

from __future__ import annotations

EXIT_STATUS = {
    "0": "Done.",
    "1": "The answer is no: a check is below its threshold.",
    "2": "Bad usage or bad input. The message says what is wrong, where, and what to try.",
    "3": "Cannot run here: a device or a package is missing. The message says which.",
    "130": "Interrupted. What was measured so far is kept; no output file is left half written.",
}

# Variables that hold for every command.
EVERYWHERE = {"EACTL_DEBUG": "When set and not 0, an error shows the Python traceback of where it happened."}

# option -> variable -> what it does, for every command that has the option.
BY_OPTION: dict[str, dict[str, str]] = {
    "--model": {
        "HF_HUB_CACHE": "Where models from Hugging Face are cached; a name given to --model is looked up there.",
        "HF_HOME": "The folder whose subfolder hub is that cache where HF_HUB_CACHE is not set.",
    },
}

# command -> variable -> what it does.
ENVIRONMENT: dict[str, dict[str, str]] = {
    "eactl": {
        "_EACTL_COMPLETE": "Set to bash_source, zsh_source or fish_source: prints that shell's completion script.",
        "EACTL_STATE_DIR": "Where engines publish the tier's state (default: $XDG_RUNTIME_DIR/eactl).",
    },
}

# command -> path -> what it holds.
FILES: dict[str, dict[str, str]] = {}
