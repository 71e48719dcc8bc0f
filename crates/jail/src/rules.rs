//! The system calls that a worker may make, as a seccomp program. The module is pure.
//!
//! The list contains the calls of the worker in all test cases, and those that the C library needs for memory, threads,
//! name resolution with its modules (`nsswitch.conf`), and backtraces. All other calls trap. These include those that
//! an intruder needs next: another program, another process, another identity, new mounts, raw sockets, kernel
//! interfaces with a history of vulnerabilities (bpf, userfaultfd, keyrings, and io_uring except for the reads of
//! `lacquer_rings`), and code that is written at run time.

use lacquer_system::call_names_table as names;
use lacquer_system::confine::Instruction;

use super::bpf::{self, Check, Rule, Verdict};

/// Calls of each request, most frequent first.
const HOT: &[&str] = &[
    "epoll_wait",
    "epoll_pwait",
    "recvfrom",
    "sendto",
    "writev",
    "sendmsg",
    "read",
    "write",
    "sendfile",
    "accept4",
    "close",
    "epoll_ctl",
    "futex",
    "fallocate",
];

/// Calls that are allowed with any arguments, by purpose.
const ALLOWED: &[&[&str]] = &[
    // Sockets. `listen` is missing, because the manager calls it. `bind` is for the resolver's own sockets.
    &[
        "accept",
        "bind",
        "connect",
        "getpeername",
        "getsockname",
        "getsockopt",
        "recvmmsg",
        "recvmsg",
        "sendmmsg",
    ],
    &["setsockopt", "shutdown"],
    // Waiting.
    &["epoll_create", "epoll_create1", "epoll_pwait2", "eventfd2", "poll", "ppoll", "pselect6", "select"],
    &["clock_nanosleep", "nanosleep", "timerfd_create", "timerfd_gettime", "timerfd_settime"],
    // Descriptors and files. Landlock and permissions determine which files.
    &[
        "access",
        "close_range",
        "dup",
        "dup2",
        "dup3",
        "faccessat",
        "faccessat2",
        "fadvise64",
        "fcntl",
        "fdatasync",
    ],
    &[
        "flock",
        "fstat",
        "fstatfs",
        "fsync",
        "ftruncate",
        "getcwd",
        "getdents64",
        "lseek",
        "lstat",
        "newfstatat",
    ],
    &[
        "open", "openat", "pipe2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2",
        "readlink",
    ],
    &["readlinkat", "readv", "rename", "renameat", "renameat2", "splice", "stat", "statfs", "statx"],
    &["sync_file_range", "unlink", "unlinkat"],
    // PCRE2 sets the mode of a memory file for machine code.
    &["fchmod", "memfd_create"],
    // Memory.
    &["brk", "madvise", "membarrier", "mincore", "mlock", "mlock2", "mremap", "msync", "munlock", "munmap"],
    // Threads.
    &["arch_prctl", "exit", "exit_group", "futex_waitv", "get_robust_list", "getcpu", "gettid", "rseq"],
    &["sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getparam"],
    &["sched_getscheduler", "sched_setaffinity", "sched_yield", "set_robust_list", "set_tid_address"],
    // Signals to itself, and time.
    &["alarm", "pause", "restart_syscall", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigreturn"],
    &["rt_sigsuspend", "rt_sigtimedwait", "setitimer", "getitimer", "sigaltstack", "timer_create"],
    &["timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime"],
    &["clock_getres", "clock_gettime", "gettimeofday", "time", "times"],
    // Information about the process and the machine.
    &["capget", "getegid", "geteuid", "getgid", "getgroups", "getpgid", "getpgrp", "getpid", "getppid"],
    &["getpriority", "getrandom", "getresgid", "getresuid", "getrlimit", "getrusage", "getsid", "getuid"],
    &["sysinfo", "uname"],
];

const EXECUTABLE: u32 = libc::PROT_EXEC as u32;
const WRITABLE: u32 = libc::PROT_WRITE as u32;
/// The bits of a socket's `type` that are the type; the others are flags.
const SOCKET_TYPE: u32 = 0xff;
/// The flags that a new thread must have, and those that it must not have.
const THREAD: u32 = (libc::CLONE_THREAD | libc::CLONE_VM) as u32;
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP) as u32;
const OPTIONS_OF_PRCTL: [i32; 5] = [
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_GET_DUMPABLE,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_SET_VMA,
];
const REQUESTS_OF_IOCTL: [libc::Ioctl; 8] = [
    libc::FIONBIO,
    libc::FIONREAD,
    libc::FIOCLEX,
    libc::FIONCLEX,
    libc::TCGETS,
    libc::TIOCGWINSZ,
    libc::TIOCOUTQ,
    libc::TIOCINQ,
];

fn is(argument: u8, value: u32) -> Check {
    Check { argument, mask: u32::MAX, equals: value }
}

fn lacks(argument: u8, bits: u32) -> Check {
    Check { argument, mask: bits, equals: 0 }
}

fn one_of(argument: u8, values: impl IntoIterator<Item = u32>) -> Vec<Vec<Check>> {
    values.into_iter().map(|value| vec![is(argument, value)]).collect()
}

/// Returns a verdict that fails the call with an error number, for calls that libraries try but do not need.
fn refuse(errno: i32) -> Verdict {
    Verdict::Refuse(errno as u16)
}

/// Returns the calls that are allowed with some arguments. `own` is the worker's process id.
fn conditional(own: u32) -> Vec<(&'static str, Vec<Vec<Check>>, Verdict)> {
    let socket = |family: i32, kind: i32| {
        let kind = Check { argument: 1, mask: SOCKET_TYPE, equals: kind as u32 };
        vec![is(0, family as u32), kind]
    };
    let sockets = vec![
        socket(libc::AF_INET, libc::SOCK_STREAM),
        socket(libc::AF_INET6, libc::SOCK_STREAM),
        socket(libc::AF_UNIX, libc::SOCK_STREAM),
        socket(libc::AF_INET, libc::SOCK_DGRAM),
        socket(libc::AF_INET6, libc::SOCK_DGRAM),
        socket(libc::AF_UNIX, libc::SOCK_DGRAM),
        // The resolver queries the addresses of the machine.
        vec![is(0, libc::AF_NETLINK as u32), is(2, libc::NETLINK_ROUTE as u32)],
    ];
    let thread = vec![vec![Check { argument: 0, mask: THREAD | NAMESPACES, equals: THREAD }]];
    let own_limits = vec![vec![is(0, 0)], vec![is(0, own)]];
    vec![
        // PCRE2 uses its interpreter if executable memory is refused.
        ("mmap", vec![vec![lacks(2, EXECUTABLE)], vec![lacks(2, WRITABLE)]], refuse(libc::EACCES)),
        ("mprotect", vec![vec![lacks(2, EXECUTABLE)]], refuse(libc::EACCES)),
        ("socket", sockets, refuse(libc::EACCES)),
        ("socketpair", one_of(0, [libc::AF_UNIX as u32]), refuse(libc::EACCES)),
        // The flags are in memory, which a filter cannot read; the C library then uses `clone`.
        ("clone3", Vec::new(), refuse(libc::ENOSYS)),
        ("clone", thread, Verdict::Trap),
        ("kill", one_of(0, [own]), Verdict::Trap),
        ("tgkill", one_of(0, [own]), Verdict::Trap),
        ("prctl", one_of(0, OPTIONS_OF_PRCTL.map(|option| option as u32)), refuse(libc::EPERM)),
        ("ioctl", one_of(1, REQUESTS_OF_IOCTL.map(|request| request as u32)), refuse(libc::ENOTTY)),
        ("prlimit64", own_limits, Verdict::Trap),
    ]
}

/// Returns the seccomp program of a worker with this process id. `has_rings` allows the use of rings of io_uring, though
/// not to create or change one: those that exist can read the disks and do nothing else.
pub fn program(own: u32, has_rings: bool) -> Vec<Instruction> {
    let hot: Vec<u32> = HOT.iter().filter_map(|name| names::number(name)).collect();
    let plain = HOT.iter().chain(ALLOWED.iter().copied().flatten());
    let mut rules: Vec<Rule> =
        plain.filter_map(|name| names::number(name)).map(|call| Rule::always(call, Verdict::Allow)).collect();
    let uses_rings = names::number("io_uring_enter").filter(|_| has_rings);
    rules.extend(uses_rings.map(|call| Rule::always(call, Verdict::Allow)));
    for (name, allowed, otherwise) in conditional(own) {
        rules.extend(names::number(name).map(|call| Rule::when(call, allowed, otherwise)));
    }
    bpf::assemble(&rules, &hot, names::first_unknown())
}

#[cfg(test)]
mod tests {
    use super::super::bpf::interpreter::{Call, call, run, verdict};
    use super::*;

    const OWN: u32 = 4711;
    const TRAP: u32 = 0x0003_0000;
    const ALLOW: u32 = 0x7fff_0000;

    fn of(name: &str, arguments: &[u64]) -> Call {
        call(names::number(name).expect("a known call"), arguments)
    }

    fn errno(number: i32) -> u32 {
        0x0005_0000 | number as u32
    }

    #[test]
    fn every_name_is_a_call_of_some_architecture() {
        let conditional: Vec<&str> = conditional(OWN).into_iter().map(|(name, ..)| name).collect();
        let all = HOT.iter().chain(ALLOWED.iter().copied().flatten()).chain(&conditional);
        let mut seen = std::collections::HashSet::new();
        for name in all {
            assert!(seen.insert(*name), "{name} is listed twice");
            assert!(!cfg!(target_arch = "x86_64") || names::number(name).is_some(), "{name}");
        }
    }

    #[test]
    fn calls_that_an_intruder_needs_trap() {
        let program = program(OWN, false);
        let others = "execve execveat vfork fork ptrace process_vm_readv process_vm_writev mount umount2 unshare setns \
            chroot pivot_root setuid setgid setresuid setgroups capset bpf perf_event_open userfaultfd \
            io_uring_setup io_uring_enter keyctl add_key request_key init_module finit_module kexec_load \
            reboot personality open_by_handle_at chmod fchmodat chown fchownat link linkat symlink symlinkat \
            mknod mknodat mkdir mkdirat rmdir truncate listen seccomp landlock_restrict_self pkey_mprotect \
            process_madvise pidfd_send_signal pidfd_getfd rt_sigqueueinfo tkill shmat swapon acct";
        for name in others.split_whitespace() {
            if let Some(number) = names::number(name) {
                assert_eq!(verdict(&program, call(number, &[])), TRAP, "{name}");
            }
        }
    }

    #[test]
    fn rings_can_be_used_but_not_created() {
        let program = program(OWN, true);
        assert_eq!(verdict(&program, of("io_uring_enter", &[])), ALLOW);
        for name in ["io_uring_setup", "io_uring_register"] {
            assert_eq!(verdict(&program, of(name, &[])), TRAP, "{name}");
        }
    }

    #[test]
    fn arguments_are_checked() {
        let program = program(OWN, false);
        let exec = u64::from(EXECUTABLE);
        let (read, write) = (libc::PROT_READ as u64, u64::from(WRITABLE));
        let thread = 0x3d_0f00;
        let cases: &[(&str, &[u64], u32)] = &[
            ("mmap", &[0, 4096, read | write], ALLOW),
            ("mmap", &[0, 4096, read | exec], ALLOW),
            ("mmap", &[0, 4096, read | write | exec], errno(libc::EACCES)),
            ("mprotect", &[0, 4096, read | write], ALLOW),
            ("mprotect", &[0, 4096, read | exec], errno(libc::EACCES)),
            ("socket", &[2, 1 | 0x80000, 6], ALLOW),
            ("socket", &[1, 2 | 0x800, 0], ALLOW),
            ("socket", &[2, 3, 1], errno(libc::EACCES)),
            ("socket", &[17, 3, 0], errno(libc::EACCES)),
            ("socket", &[16, 3 | 0x80000, 0], ALLOW),
            ("socket", &[16, 3, 9], errno(libc::EACCES)),
            ("clone", &[thread], ALLOW),
            ("clone", &[thread | libc::CLONE_NEWUSER as u64], TRAP),
            ("clone", &[libc::SIGCHLD as u64], TRAP),
            ("clone", &[(libc::CLONE_VM | libc::CLONE_VFORK) as u64], TRAP),
            ("clone3", &[], errno(libc::ENOSYS)),
            ("kill", &[u64::from(OWN), 6], ALLOW),
            ("kill", &[1, 9], TRAP),
            ("kill", &[u64::from(u32::MAX), 9], TRAP),
            ("tgkill", &[u64::from(OWN), 1, 6], ALLOW),
            ("tgkill", &[u64::from(OWN) + 1, 1, 6], TRAP),
            ("prctl", &[libc::PR_SET_NAME as u64], ALLOW),
            ("prctl", &[libc::PR_SET_DUMPABLE as u64, 1], errno(libc::EPERM)),
            ("ioctl", &[3, libc::FIONBIO], ALLOW),
            ("ioctl", &[3, libc::TIOCSTI], errno(libc::ENOTTY)),
            ("prlimit64", &[0, 7], ALLOW),
            ("prlimit64", &[1, 7], TRAP),
        ];
        for (name, arguments, wanted) in cases {
            assert_eq!(verdict(&program, of(name, arguments)), *wanted, "{name} {arguments:?}");
        }
    }

    #[test]
    fn frequent_calls_need_few_instructions() {
        let program = program(OWN, false);
        for name in HOT {
            let Some(number) = names::number(name) else { continue };
            let (verdict, steps) = run(&program, call(number, &[]));
            assert_eq!(verdict, ALLOW, "{name}");
            assert!(steps <= 4 + HOT.len(), "{name} takes {steps} instructions");
        }
        let longest = (0..names::first_unknown()).map(|number| run(&program, call(number, &[])).1).max();
        assert!(longest < Some(64), "{longest:?}");
        assert!(program.len() < 1000, "{}", program.len());
    }
}
