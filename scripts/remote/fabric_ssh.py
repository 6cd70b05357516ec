"""SSH from this node to the next one over the fabric, by a key of its own. What it may run there is in receive-*.sh."""

import os

OPTIONS = """\
Host next
HostName {address}
Port {port}
User {user}
IdentityFile "{key}"
IdentitiesOnly yes
BatchMode yes
ConnectTimeout 15
ServerAliveInterval 15
StrictHostKeyChecking yes
UserKnownHostsFile /dev/null
GlobalKnownHostsFile /dev/null
KnownHostsCommand /bin/echo %H {hostKey}
HostKeyAlgorithms {algorithms}
# Fast where the processor knows AES, as every Spark's does.
Ciphers ^aes128-gcm@openssh.com
# All that is asked goes over one connection.
ControlMaster auto
ControlPath "{place}/socket"
"""


def ssh_config(place, key, node):
    """Path of a file, in the folder `place`, by which `ssh -F FILE next` reaches the node: its address, port, user, hostKey."""
    path, key_type = os.path.join(place, "config"), node["hostKey"].split()[0]
    algorithms = "rsa-sha2-512,rsa-sha2-256" if key_type == "ssh-rsa" else key_type
    with open(path, "w", encoding="utf-8") as file:
        file.write(OPTIONS.format(**node, key=os.path.abspath(key), algorithms=algorithms, place=place))
    return path
