//! The kernel's functions to confine a process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// One instruction of a seccomp program in the kernel's form (`struct sock_filter`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    pub jump_if: u8,
    pub jump_unless: u8,
    pub operand: u32,
}

/// `struct sock_fprog`.
#[repr(C)]
struct Program {
    length: u16,
    instructions: *const Instruction,
}

/// The rights that a set of Landlock rules controls (`struct landlock_ruleset_attr`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landlock {
    pub files: u64,
    pub network: u64,
    pub scopes: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Beneath {
    allowed: u64,
    parent: i32,
}

/// `struct mount_attr`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

const SECCOMP_SET_MODE_FILTER: libc::c_long = 1;
const LANDLOCK_CREATE_RULESET_VERSION: libc::c_long = 1;
const LANDLOCK_RULE_PATH_BENEATH: libc::c_long = 1;
const MOUNT_ATTR_RDONLY: u64 = 1;
const MOUNT_ATTR_NOSUID: u64 = 2;
const AT_RECURSIVE: libc::c_long = 0x8000;

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Borrows a descriptor that the manager left open for the life of the process.
pub fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the number comes from the manager's configuration; its owner keeps it open for the life of the process.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Installs a seccomp program for this thread and those that it starts.
pub fn install_filter(program: &[Instruction]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let whole = Program { length, instructions: program.as_ptr() };
    let install = |flags: libc::c_ulong| {
        // SAFETY: the structure and the instructions it points to live until the call returns; the kernel copies
        // and checks them.
        check(unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &raw const whole) })
    };
    // The worker runs no untrusted code, so a restriction of speculation (before Linux 5.16) would only cost time.
    install(libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW).or_else(|_| install(0)).map(drop)
}

/// Returns the kernel's version of Landlock.
pub fn landlock_version() -> io::Result<u32> {
    // SAFETY: no memory is passed.
    let version = check(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, 0_usize, 0_usize, LANDLOCK_CREATE_RULESET_VERSION)
    })?;
    Ok(version as u32)
}

/// Creates a set of rules that denies everything it controls.
pub fn landlock_ruleset(handled: Landlock) -> io::Result<OwnedFd> {
    // Older kernels expect a shorter structure, and accept a longer one if the rest is zero.
    let (from, size) = (&raw const handled, size_of::<Landlock>());
    // SAFETY: the structure is valid for the length given.
    let fd = check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, from, size, 0_usize) })?;
    // SAFETY: the call returned a new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Allows these rights for a file, or for everything in a directory.
pub fn landlock_allow(ruleset: &OwnedFd, parent: impl AsFd, allowed: u64) -> io::Result<()> {
    let rule = Beneath { allowed, parent: parent.as_fd().as_raw_fd() };
    let (to, from) = (ruleset.as_raw_fd(), &raw const rule);
    // SAFETY: the structure is that of this kind of rule, and lives until the call returns.
    let done =
        unsafe { libc::syscall(libc::SYS_landlock_add_rule, to, LANDLOCK_RULE_PATH_BENEATH, from, 0_usize) };
    check(done).map(drop)
}

/// Enforces the rules for this thread and those that it starts.
pub fn landlock_enter(ruleset: &OwnedFd) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_usize) }).map(drop)
}

/// Enters a mount namespace that is read-only and ignores set-user-ID bits, and an empty namespace for System V
/// objects. New mounts of the system still appear.
pub fn leave_namespaces() -> io::Result<()> {
    let slave = libc::MS_REC | libc::MS_SLAVE;
    let attributes = MountAttributes {
        set: MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID,
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    };
    let root = c"/".as_ptr();
    // SAFETY: no memory is passed, and there is one thread.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWIPC) }.into())?;
    // SAFETY: the strings are constants; the null arguments are ignored for this operation.
    check(unsafe { libc::mount(c"none".as_ptr(), root, std::ptr::null(), slave, std::ptr::null()) }.into())?;
    let size = size_of::<MountAttributes>();
    // SAFETY: the structure is valid for the length given.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            root,
            AT_RECURSIVE,
            &raw const attributes,
            size,
        )
    })
    .map(drop)
}

/// Drops all capabilities that a program could gain, as far as this process is permitted to.
pub fn drop_bounding_set() {
    // SAFETY: no memory is passed; the kernel refuses unknown numbers.
    unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        for capability in 0..64 {
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
    }
}

/// Tries to execute a program without a name, which always fails. Returns unless the jail forbids the call.
pub fn try_to_execute() {
    // SAFETY: the kernel reads the name first and fails with EFAULT.
    unsafe { libc::syscall(libc::SYS_execve, 0_usize, 0_usize, 0_usize) };
}
