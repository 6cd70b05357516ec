/** What preflight can find wrong. `docs/troubleshooting.md` lists them all; a test holds the two together. */
export interface Code {
  /** An error stops the deployment before anything is touched; a warning does not. */
  severity: "error" | "warning";
  /** What it says. */
  meaning: string;
  /** Where it usually comes from, and what would happen without the check. */
  cause: string;
  /** How to mend it. */
  cure: string;
}

const error = (meaning: string, cause: string, cure: string): Code => ({ severity: "error", meaning, cause, cure });
const warning = (meaning: string, cause: string, cure: string): Code => ({ severity: "warning", meaning, cause, cure });

export const codes = {
  // The way to the node
  "ssh-unreachable": error(
    "The node's SSH port does not answer.",
    "The Spark is off or still booting, the address or port is wrong, or the cable is out.",
    "Try `ssh USER@HOST` by hand; correct `host`, `port` and `via` of the node.",
  ),
  "ssh-jump-host": error(
    "The node is reached through another one, and that one can't be used.",
    "The jump host is down, or refuses; its own problem is listed too.",
    "Mend the jump host's problem first, or reach the node another way (`via`).",
  ),
  "ssh-host-key": error(
    "The host showed another key than `hostKey` says.",
    "The Spark was set up anew, the key is of another type, or somebody stands in between.",
    "Compare on its console (`cat /etc/ssh/ssh_host_ecdsa_key.pub`), then set `hostKey` to it.",
  ),
  "ssh-key-refused": error(
    "The host refuses the operator's SSH key.",
    "The public key is not in the user's `~/.ssh/authorized_keys`, or the user is wrong.",
    "`ssh-copy-id USER@HOST` (with `-o ProxyJump=USER@JUMPHOST` where there is one), or set `ssh.privateKeyPath` and `user`.",
  ),
  "ssh-frozen": error(
    "TCP connects, but SSH says nothing.",
    "The Spark is out of memory: ping answers, programs don't run. (Or a firewall on the way takes every connection.)",
    "Switch it off and on; then lower `server.gpuMemoryUtilization`.",
  ),
  "probe-failed": error(
    "The node answers, but its facts could not be read.",
    "Python 3.9 or newer is missing, the disk is full, or the machine is too busy to answer in time.",
    "Run `python3 --version` there, and look at what the message quotes.",
  ),
  // The machine
  "not-gb10": warning(
    "The machine is no GB10.",
    "`accelerator: gb10` is set for a machine that does not call itself one.",
    "Correct `host`, or expect flags and figures that were made for another machine.",
  ),
  "architecture-mismatch": error(
    "The nodes differ in processor architecture, or a GB10 is no aarch64.",
    "One image serves all nodes, so they must be alike.",
    "Correct `nodes`.",
  ),
  "gpu-missing": error(
    "The driver shows no GPU.",
    "The driver is not loaded, or was updated and the machine not restarted since.",
    "Run `nvidia-smi` there; after an update of the driver: `sudo reboot`.",
  ),
  "driver-unequal": error(
    "The nodes run different NVIDIA drivers.",
    "One Spark was updated, the other was not. NCCL then fails or hangs between them.",
    "Update all nodes to one release, then restart them.",
  ),
  "kernel-holds-memory": warning(
    "The kernel keeps memory for itself that RDMA and the GPU then lack: `ibv_reg_mr` fails, and a gigabyte or much more is gone.",
    "Known of the kernels 7.0.0-1019 and 7.0.0-31, which set it aside for a next kernel (KHO): more CMA memory is free than there is.",
    "Add `kho=off` to the kernel's command line (`GRUB_CMDLINE_LINUX_DEFAULT` in `/etc/default/grub`, `sudo update-grub`, restart), where `cat /sys/kernel/kexec_crash_size` says 0; or boot a 6.17 kernel.",
  ),
  "driver-590": warning(
    "Driver 590.x deadlocks while CUDA graphs are captured.",
    "Known of this driver series on GB10.",
    "Go back to a 580.x driver, or add `--enforce-eager` to `server.extraArgs` (slower).",
  ),
  "kernel-unequal": warning(
    "The nodes run different kernels.",
    "One Spark was updated or restarted, the other was not.",
    "Update all nodes to one release, then restart them.",
  ),
  "gpu-in-use": warning(
    "Another program uses the GPU.",
    "A desktop session, a notebook, or an engine outside this deployment.",
    "End it, or leave it room: lower `server.gpuMemoryUtilization`.",
  ),
  "clock-skew": error(
    "The node's clock is far from the operator's.",
    "Time synchronisation is off. Certificates, tokens and logs then don't fit together.",
    "`sudo timedatectl set-ntp true` there (or on the operator's machine).",
  ),
  "hostname-unresolved": error(
    "The machine's own name resolves to nothing on it.",
    "`/etc/hosts` lost its line. Ray and PyTorch look the name up when they start.",
    "Add `127.0.1.1 NAME` to `/etc/hosts` there.",
  ),
  "hostname-elsewhere": error(
    "The machine's own name resolves to an address that it does not have.",
    "A stale line in `/etc/hosts` or in DNS: ranks would advertise another machine's address. (127.0.1.1, as Ubuntu writes it, does no harm here: every choice of an address is pinned to the fabric.)",
    "Correct the line in `/etc/hosts` there: `127.0.1.1 NAME`.",
  ),
  // Memory and disks
  "memory-short": error(
    "There is less memory available than the engine will take.",
    "Something else holds it: another engine, a leak of an earlier one, a desktop session.",
    "End what holds it (`ps aux --sort=-rss`), restart the Spark, or lower `server.gpuMemoryUtilization`.",
  ),
  "page-cache": warning(
    "The page cache holds memory that the engine counts as taken.",
    "CUDA's free memory does not count the cache. The engine's check may refuse at the first start.",
    "`sudo sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'` there.",
  ),
  "swap-in-use": warning(
    "The machine has swapped.",
    "It was short of memory. A model that is swapped is unusably slow.",
    "Free memory, then `sudo swapoff -a && sudo swapon -a` there.",
  ),
  "disk-short": error(
    "The disk of Docker's images is too small for the image.",
    "Old images, or Docker on a small disk.",
    "`docker system prune --all` there, or move Docker's data; `preflight.imageGB` says what is asked for, which is nothing where the image is there already.",
  ),
  // Docker
  "docker-missing": error(
    "There is no Docker.",
    "It is not installed, or not on the user's PATH.",
    "Install Docker; on DGX OS it is there.",
  ),
  "docker-down": error(
    "The Docker daemon does not answer.",
    "It is stopped, or hangs; or `docker` is another program (podman's), or is set to a context that is not there.",
    "`sudo systemctl restart docker` there, and look at `journalctl -u docker`; else at `docker context ls`, `docker --version`.",
  ),
  "docker-denied": error(
    "The user may not use Docker.",
    "The user is not in the group docker, or logged in before that was changed.",
    "`sudo usermod -aG docker USER` there.",
  ),
  "docker-no-gpu": error(
    "Docker can't give the GPU to containers.",
    "NVIDIA's container runtime is not configured.",
    "`sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker` there.",
  ),
  "container-foreign": error(
    "A container has the name of one of ours, and is not ours.",
    "Another program, or another deployment, made it.",
    "Rename or remove it: `docker rename NAME OTHER`, `docker rm -f NAME`.",
  ),
  "container-stopped": warning(
    "A container of this deployment is there and does not run.",
    "It ended too often, or somebody stopped it. Pulumi compares settings with what it made, and does not see that.",
    "`pulumi up --refresh`, which makes it anew; `docker logs NAME` there says why it ended.",
  ),
  "deployment-in-the-way": error(
    "Another deployment of this program runs on the node.",
    "Two stacks name the same Spark.",
    "Destroy the other stack, or name other nodes.",
  ),
  "port-taken": error(
    "A port that is needed is taken.",
    "Another service listens there. The engine would end at its start, or Ray join a stranger.",
    "End the service; or, where it is the port of the API, choose another `server.port`.",
  ),
  // The model
  "model-unusable": error(
    "The model's folder is missing, not whole, or can't be read.",
    "The download or a copy was interrupted, the path is wrong, or the files belong to another user.",
    "Copy the model to `model.path` on that node; make it readable: `chmod -R a+rX`.",
  ),
  "model-different": error(
    "The model's files differ between the nodes.",
    "Another revision, or a copy that was not finished. Ranks would load different weights. Names and sizes are compared: of weights, tokenizer files and every `*.json` at the top of the folder.",
    "`rsync -a --checksum` the folder from the head.",
  ),
  "rsync-missing": error(
    "rsync is not on the node, by which the model goes from node to node.",
    "It was never installed.",
    "`sudo apt install rsync` there.",
  ),
  "model-changed": warning(
    "A file of the model is not as it was when the program brought it, or is missing.",
    "Somebody changed or removed it, or the disk fails. The engine may load what is there.",
    "`pulumi up --replace '**model-*'`: what is wrong comes again, and the rest is read once more.",
  ),
  // The fabric of one node
  "fabric-interface-missing": error(
    "`fabric.interface` is not on the node.",
    "A wrong name: the port differs between Sparks, and names with it.",
    "Set it to the one that `ip -brief link` shows UP with the cable in.",
  ),
  "fabric-interface-down": error(
    "`fabric.interface` has no link.",
    "The cable is out, or in the other port; or the interface is switched off.",
    "Put the cable in, or `sudo ip link set NAME up`.",
  ),
  "fabric-address-missing": error(
    "`fabric.address` is not on `fabric.interface`.",
    "It is on another interface, or was lost at a restart (netplan).",
    "Give the interface the address in netplan, or correct the setting.",
  ),
  "fabric-address-management": error(
    "The fabric is the management network.",
    "`fabric.interface` is slow, and is no ConnectX port or holds the default route: the engine's traffic would go over it.",
    "Set `fabric` to the interface and address of the ConnectX port.",
  ),
  "fabric-address-twice": error(
    "Two machines hold one fabric address.",
    "A copied netplan file.",
    "Give each its own address.",
  ),
  "fabric-subnets-differ": error(
    "The nodes' fabric addresses are in different subnets, and don't reach each other.",
    "`fabric` of a node is set to its other network, or a netplan file has another subnet.",
    "Set `fabric.interface` and `fabric.address` of each node to those of the cable between them: `ip -brief address`.",
  ),
  "fabric-mtu-unequal": error(
    "The fabric's MTU differs between the nodes.",
    "A firmware update or restart set one end back to 1500. Small packets pass, large ones vanish: the load hangs.",
    "Set the same MTU on all ends, in netplan: `mtu: 9000`.",
  ),
  "fabric-mtu-low": warning(
    "The fabric's MTU is below 9000.",
    "The default. It costs throughput.",
    "Set `mtu: 9000` in netplan on all nodes.",
  ),
  "fabric-speed-unequal": error(
    "The fabric's link speed differs between the nodes.",
    "One end is another port, or the link came up at a lower speed.",
    "Check cable and port; `ethtool NAME` shows the speed.",
  ),
  "fabric-speed-low": warning(
    "The fabric's link is slower than a ConnectX port.",
    "The interface is the Ethernet port, or the cable is not made for 200 Gb/s.",
    "Use the ConnectX port and a 200G cable.",
  ),
  "hca-missing": error(
    "An RDMA device of `fabric.hcas` is not on the node.",
    "A wrong name: they differ with the port.",
    "Set both twins that `ibdev2netdev` shows Up.",
  ),
  "hca-other-port": error(
    "An RDMA device of `fabric.hcas` is not of the cable of `fabric.interface`.",
    "It belongs to the other port. NCCL would wait for a link that is not there.",
    "Set both twins of the port: `ibdev2netdev` shows which interface each belongs to.",
  ),
  "hca-down": error(
    "An RDMA device of `fabric.hcas` has no link.",
    "The cable is out, or the port is off.",
    "Check cable and port: `rdma link`.",
  ),
  "hca-twin-missing": warning(
    "Only one of the cable's two RDMA devices is named.",
    "Each port shows as two devices, each with half of the bandwidth.",
    "Add the twin to `fabric.hcas`.",
  ),
  "hca-no-address": warning(
    "An RDMA device has no RoCE v2 entry with an IPv4 address.",
    "Its interface has no address. NCCL falls back to the link-local entry, slowly or not at all.",
    "Give the twin's interface an address on a subnet of its own.",
  ),
  // Between the nodes
  "fabric-blocked": error(
    "A node can't connect to another over the fabric.",
    "A firewall, a wrong subnet, or a stale neighbour entry. Ping may pass all the same.",
    "Allow all TCP between the fabric addresses: `sudo nft list ruleset`, `ip route get ADDRESS`.",
  ),
  "fabric-untried": warning(
    "The fabric could not be tried from a node.",
    "Its port for that, 6382, is in use, or the node was too slow.",
    "Look with `ss -ltnup` who has the port; then run it again.",
  ),
  "fabric-mtu-path": error(
    "A packet of the interface's full MTU does not get through.",
    "A switch, or the other end, has a smaller MTU. Small packets pass, large ones vanish.",
    "Set the same MTU on all ends and on the switch.",
  ),
  "fabric-slow": warning(
    "TCP over the fabric is much slower than the link.",
    "Traffic goes another way, the machine is busy, or the link has errors.",
    "Compare `ip route get ADDRESS` with `fabric.interface`; look at `ethtool -S NAME`.",
  ),
  // Once Ray is up, before the model is loaded
  "all-reduce-failed": error(
    "The nodes could not add up a tensor over the fabric.",
    "What the engine does at every layer does not work: a wrong interface or RDMA device, or ports between the nodes.",
    "Look at the lines that the message quotes, and at `docker logs` of Ray's containers.",
  ),
  "all-reduce-slow": error(
    "The all-reduce is slower than `fabric.minimumGBps`.",
    "One RDMA device of two, a small MTU, a GID that is link-local, or a busy machine.",
    "See the warnings of preflight about `fabric.hcas` and MTU; then `pulumi up` again. Or lower `fabric.minimumGBps`.",
  ),
  "rdma-unused": error(
    "NCCL talks over sockets, though RDMA devices are named.",
    "It could not open a device: names, permissions of `/dev/infiniband`, or an image without RDMA libraries.",
    "Check `fabric.hcas` with `ibdev2netdev`; set `NCCL_DEBUG` to `INFO` in `server.environment` to see why.",
  ),
  "rdma-partly": error(
    "NCCL does not use the RDMA devices as it should.",
    "A device is left out, is on a link-local GID, or several share one: two interfaces on one subnet do that.",
    "Give each twin's interface an address on a subnet of its own, and name both in `fabric.hcas`.",
  ),
} as const satisfies Record<string, Code>;

export type ProblemCode = keyof typeof codes;
