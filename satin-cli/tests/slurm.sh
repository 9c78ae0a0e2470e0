#!/bin/bash
# Runs the recipe of docs/src/when-every-machine-dies.md, "A Slurm job that is requeued", as it is printed there, on a real Slurm.
# No other test needs this one; it is started by hand, and takes ten minutes:
#
#   cargo build --release -p satin-cli && cargo build --release --example knary && sudo satin-cli/tests/slurm.sh
#
# Needs Linux, root, bash, iproute2, util-linux, and slurmctld, slurmd and munged (Debian: slurm-wlm, munge). No Slurm must be configured:
# the script makes a cluster of its own. Each of its three machines is a namespace of networks, processes and host names, all of which
# end when this script does. Without one of these it says so, and ends with code 0.
#
# The recipe's number of machines, its paths, its time and its program are replaced, and nothing else.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
built=${SATIN_BUILT:-${CARGO_TARGET_DIR:-$here/target}/release}
recipe=$here/docs/src/when-every-machine-dies.md

skip() { echo "skipped: $*"; exit 0; }
[ "$(id -u)" = 0 ] || skip "needs root"
for command in slurmctld slurmd munged sbatch ip unshare; do
    command -v "$command" >/dev/null || skip "there is no $command"
done
for program in "$built/satin" "$built/examples/knary"; do
    [ -x "$program" ] || skip "$program is not built"
done

# Short names: the kernel allows 15 bytes.
id=slt$$
net=10.177.0
D=$(mktemp -d "/tmp/$id.XXXXXX")
export SLURM_CONF=$D/slurm.conf
declare -A machine=()
controller= munge=

clean() {
    for i in "${!machine[@]}"; do kill -9 "${machine[$i]}"; done
    [ -n "$controller" ] && kill "$controller"
    [ -n "$munge" ] && kill "$munge"
    wait
    for i in 1 2 3; do
        ip netns del "$id-$i"
        rm -rf "/etc/netns/$id-$i"
    done
    ip link del "$id"
    if [ "${failed:-0}" = 0 ]; then rm -rf "$D"; else echo "what it left is in $D"; fi
} 2>/dev/null
trap clean EXIT
trap 'exit 130' INT TERM

configure() {
    mkdir -p "$D"/{state,log,shared,spool/m1,spool/m2,spool/m3}
    # All nodes share this machine's memory and cores: each says that it has two. Requeued jobs start after cred_expire seconds.
    cat >"$SLURM_CONF" <<END
ClusterName=satin
SlurmctldHost=$(hostname)($net.254)
SlurmctldPort=26817
SlurmdPort=26818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$D/munge.sock,cred_expire=15
CredType=cred/munge
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool/%n
SlurmctldPidFile=$D/slurmctld.pid
SlurmdPidFile=$D/slurmd-%n.pid
SlurmctldLogFile=$D/log/slurmctld
SlurmdLogFile=$D/log/slurmd-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=20
MinJobAge=3600
NodeName=m1 NodeAddr=$net.1 CPUs=2 RealMemory=100
NodeName=m2 NodeAddr=$net.2 CPUs=2 RealMemory=100
NodeName=m3 NodeAddr=$net.3 CPUs=2 RealMemory=100
PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE GraceTime=60
PartitionName=high Nodes=ALL MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
END
    # Without a plugin that looks for cgroups: there may be none in a namespace.
    echo "CgroupPlugin=cgroup/v1" >"$D/cgroup.conf"
    head -c 128 /dev/urandom >"$D/munge.key"
    chmod 600 "$D/munge.key"
}

start_cluster() {
    ip link add "$id" type bridge && ip addr add "$net.254/24" dev "$id" && ip link set "$id" up || skip "no bridge can be made"
    for i in 1 2 3; do
        ip netns add "$id-$i" || skip "no network namespace can be made"
        ip link add eth0 netns "$id-$i" type veth peer name "${id}v$i"
        ip link set "${id}v$i" master "$id" up
        ip -n "$id-$i" addr add "$net.$i/24" dev eth0
        ip -n "$id-$i" link set eth0 up
        ip -n "$id-$i" link set lo up
        mkdir -p "/etc/netns/$id-$i"
        # As Debian installs it: a machine's own name is that of its loopback interface.
        printf '%s\n' "127.0.0.1 localhost" "127.0.1.1 m$i" "$net.1 m1" "$net.2 m2" "$net.3 m3" "$net.254 $(hostname)" \
            >"/etc/netns/$id-$i/hosts"
    done
    munged --force -F --socket="$D/munge.sock" --key-file="$D/munge.key" --pid-file="$D/munged.pid" \
        --log-file="$D/log/munged" --seed-file="$D/munge.seed" >"$D/log/munged.out" 2>&1 &
    munge=$!
    sleep 1
    slurmctld -D >"$D/log/slurmctld.out" 2>&1 &
    controller=$!
    for i in 1 2 3; do start_machine $i; done
}

# All processes of a machine end when that one does.
start_machine() {
    unshare --uts --pid --fork --kill-child --mount-proc ip netns exec "$id-$1" \
        sh -c "hostname m$1; mount -t proc proc /proc; exec slurmd -D -N m$1" >"$D/log/slurmd$1.out" 2>&1 &
    machine[$1]=$!
}

cut_power() {
    kill -9 "${machine[$1]}"
    wait "${machine[$1]}"
} 2>/dev/null

# ------------------------------------------------------------------------------------------------------------------ the trials

# The recipe, for these machines. Arguments: a name, the time, the program's arguments.
recipe() {
    sed -n '/^#!\/bin\/bash/,/^exit \$code/p' "$recipe" | sed \
        -e "s#--nodes=8#--nodes=3#" -e "s#--time=04:00:00#--time=$2#" -e "s#\$HOME/pool.pem#$D/pool.pem#" \
        -e "s#/shared/satin#$D/shared/satin#" -e "s#\./program 42#$built/examples/knary $3#" >"$D/$1.sh"
    grep -q "knary $3" "$D/$1.sh" || { echo "the recipe was not found in $recipe"; exit 1; }
}

submit() { job=$(sbatch --parsable --output="$D/$1.out" "$D/$1.sh"); }
state() { scontrol show job "$job" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p'; }
is() { [ "$(state)" = "$1" ]; }
said() { grep -q -- "$2" "$D/$1.out" 2>/dev/null; }
starts() { [ "$(cat "$D/$1.out" 2>/dev/null | grep -c "goes on with run")" -ge "$2" ]; }
idle() { [ "$(sinfo -h -N -p low -o %T | sort | uniq -c | xargs)" = "3 idle" ]; }
nothing_stored() { [ -z "$(find "$D/shared" -type f)" ]; }

failed=0
# Waits for a condition: seconds, a text for people, a command.
wait_for() {
    local left=$1 text=$2
    shift 2
    while ! "$@"; do
        if [ $((left -= 1)) -lt 0 ]; then
            echo "  FAILED: $text ($(state 2>/dev/null))"
            failed=1
            return 1
        fi
        sleep 1
    done
    echo "  $text"
}
begin() { echo "$1:"; wait_for 90 "three machines are idle" idle; }
ends_well() {
    wait_for 400 "the job is completed" is COMPLETED
    wait_for 5 "the answer is there" said "$1" "^knary("
    wait_for 5 "nothing is left in the store" nothing_stored
}
leave() { scancel "$job"; sleep 5; rm -rf "$D/shared/satin"; }

configure
start_cluster
"$built/satin" keygen "$D/pool.pem" >/dev/null
short="4 6 150000 --sleep" long="5 6 100000 --sleep"

begin "a job that nobody disturbs"
recipe plain 01:00:00 "4 6 10000 --sleep --count $D/leaves"
submit plain
ends_well plain
wait_for 5 "three nodes were in" said plain "on 3 nodes"
wait_for 5 "each leaf was done once" [ "$(stat -c %s "$D/leaves")" = 1296 ]

begin "a program that ends with an error"
recipe error 01:00:00 "--no-such-option"
submit error
wait_for 60 "the job has failed" is FAILED
wait_for 1 "with the program's exit code" eval 'scontrol show job "$job" | grep -q " ExitCode=2:0"'

begin "scontrol requeue"
recipe requeue 01:00:00 "$short"
submit requeue
wait_for 60 "it runs" is RUNNING
sleep 12
scontrol requeue "$job"
wait_for 120 "it goes on" starts requeue 1
ends_well requeue

begin "a power cut"
recipe power 01:00:00 "$short"
submit power
wait_for 60 "it runs" is RUNNING
sleep 15
for i in 1 2 3; do cut_power $i; done
for i in 1 2 3; do start_machine $i; done
wait_for 180 "it goes on" starts power 1
ends_well power

begin "a machine that fails"
recipe machine 01:00:00 "$short"
submit machine
wait_for 60 "it runs" is RUNNING
sleep 10
cut_power 3
wait_for 60 "Slurm has noticed" said machine "Node failure on m3"
ends_well machine
wait_for 5 "it was one start" eval '! starts machine 1'
start_machine 3

begin "preemption"
recipe preempt 01:00:00 "$short"
submit preempt
wait_for 60 "it runs" is RUNNING
sleep 12
sbatch -p high -N3 --exclusive --output="$D/high.out" --wrap "sleep 5" >/dev/null
wait_for 180 "it goes on" starts preempt 1
ends_well preempt

begin "all nodes are asked to end"
recipe asked 01:00:00 "$short"
submit asked
wait_for 60 "it runs" is RUNNING
sleep 12
scancel --signal=TERM "$job.0"
wait_for 120 "it goes on" starts asked 1
ends_well asked

begin "the time limit, twice"
recipe limit 00:03:00 "$long"
submit limit
wait_for 200 "it goes on" starts limit 1
wait_for 200 "and again" starts limit 2
ends_well limit

begin "scancel"
recipe cancel 01:00:00 "$long"
submit cancel
wait_for 60 "it runs" is RUNNING
sleep 12
scancel "$job"
wait_for 60 "it is cancelled" is CANCELLED
sleep 20
wait_for 1 "and stays so" is CANCELLED
leave

exit $failed
