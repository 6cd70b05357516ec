"""Programs that a script starts."""

import ctypes
import signal

# From linux/prctl.h.
PR_SET_PDEATHSIG = 1


def die_with_parent():
    """For `preexec_fn`: what nobody waits for must not go on. Ends it with the thread that started it, too."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
