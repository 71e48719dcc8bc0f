//! The jail: the few operations that a compromised worker could still perform.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use lacquer_testing::client::get;
use lacquer_testing::daemon::{Daemon, is_root, signal, until};
use lacquer_testing::slots::shared_slot;

/// A VCL that reads the files and variables that the client names, and runs a regular expression.
const VCL: &str = r#"vcl 4.1;
import std;
backend default none;
sub vcl_recv {
    if (req.url ~ "^/(a|b)+[^c]*c$") { return (synth(201)); }
    return (synth(200));
}
sub vcl_synth {
    set resp.http.file = std.fileread(req.http.path);
    set resp.http.given = std.getenv("LACQUER_TEST_GIVEN");
    set resp.http.other = std.getenv("LACQUER_TEST_" + "OTHER");
    set resp.http.chosen = std.getenv("LACQUER_TEST_" + "CHOSEN");
}
"#;

const PLAIN: &str = "exec \"$@\"";
const WITH_SECRETS: &str =
    "LACQUER_TEST_GIVEN=1 LACQUER_TEST_OTHER=2 LACQUER_TEST_CHOSEN=3 LD_BIND_NOW=1 exec \"$@\"";

fn start(options: &[&str], script: &str) -> Daemon {
    Daemon::start_jailed(VCL, options, script)
}

/// Returns the value of a line of `/proc/PID/status`.
fn status(pid: u32, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{field} in {text}")).trim().to_owned()
}

fn ids(pid: u32) -> Vec<u32> {
    let users = status(pid, "Uid");
    users.split_whitespace().map(|id| id.parse().expect("a number")).collect()
}

fn assert_confined(daemon: &mut Daemon) {
    let worker = daemon.worker();
    // The request uses the reactor's memory and the machine code of VCL and of the regular expression.
    assert_eq!(get(daemon.address, "/abbac").expect("a response arrives").status, 201);
    for task in fs::read_dir(format!("/proc/{worker}/task")).expect("threads").flatten() {
        let thread: u32 = task.file_name().to_string_lossy().parse().expect("a number");
        assert_eq!(status(thread, "NoNewPrivs"), "1");
        assert_eq!(status(thread, "Seccomp"), "2");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(status(thread, set), "0000000000000000", "{set}");
        }
        if is_root() {
            assert_eq!(status(thread, "CapBnd"), "0000000000000000");
        }
    }
    let maps = fs::read_to_string(format!("/proc/{worker}/maps")).unwrap_or_default();
    assert!(!is_root() || maps.contains("sljit"), "machine code of the regular expression in {maps}");
    for line in maps.lines() {
        let rights = line.split_whitespace().nth(1).unwrap_or_default();
        assert!(!(rights.contains('w') && rights.contains('x')), "{line}");
    }
}

fn header(daemon: &Daemon, name: &str) -> Option<String> {
    let answer = get(daemon.address, "/").expect("a response arrives");
    answer.header(name).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Promise: every thread of the worker has no privileges, a system call filter, and no memory that is writable and
/// executable.
#[test]
fn every_thread_of_the_worker_is_confined() {
    let _slot = shared_slot();
    assert_confined(&mut start(&["-j", "none"], PLAIN));
    let mut daemon = start(&[], PLAIN);
    assert_confined(&mut daemon);
    let worker = daemon.worker();
    assert!(ids(worker).iter().all(|id| *id != 0) || !is_root(), "no id of root: {:?}", ids(worker));
    assert!(!daemon.stderr().contains("jail is incomplete"), "{}", daemon.stderr());
}

/// Promise: a worker that makes a system call outside its allow-list ends, and the manager shows which call it was.
#[test]
fn a_violation_names_the_system_call() {
    let _slot = shared_slot();
    let mut daemon = start(&[], PLAIN);
    let before = daemon.worker();
    daemon.cli("debug.jail");
    assert!(until(|| daemon.cli("panic.show").0 == 200), "there is a panic text");
    let shown = daemon.ok("panic.show");
    for part in
        ["signal 31 (Bad system call)", "forbids the worker to call execve", "Backtrace:", "pthread.name"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(until(|| daemon.ok("pid").contains("Worker")), "another worker runs");
    assert_ne!(daemon.worker(), before);
}

/// Promise: the parameters that open the jail work, and the daemon reports that in one line.
#[test]
fn an_open_jail_is_reported() {
    let _slot = shared_slot();
    let mut daemon = start(&["-p", "jail_syscalls=off", "-p", "jail_files=off"], PLAIN);
    assert_eq!(status(daemon.worker(), "Seccomp"), "0");
    assert!(daemon.ok("debug.jail").contains("does not forbid"));
    assert_eq!(daemon.stderr().matches("jail is incomplete").count(), 1, "{}", daemon.stderr());
}

/// Promise: VCL reads files by their paths, and only those that the operator permits.
#[test]
fn only_permitted_files_are_read() {
    let _slot = shared_slot();
    let dir = std::env::temp_dir().join(format!("lacquer-jail-{}", std::process::id()));
    fs::create_dir_all(dir.join("open")).expect("a directory can be created");
    let (outside, inside) = (dir.join("text"), dir.join("open/text"));
    fs::write(&outside, "outside").expect("a file can be written");
    fs::write(&inside, "inside").expect("a file can be written");
    let read = |daemon: &Daemon, path: &std::path::Path| {
        let mut client =
            lacquer_testing::client::Client::connect(daemon.address).expect("connections are accepted");
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nPath: {}\r\n\r\n", path.display());
        let answer = client.ask(&request).expect("a response arrives");
        answer.header("file").filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let daemon = start(&[], PLAIN);
    assert_eq!(read(&daemon, &outside).as_deref(), Some("outside"));
    drop(daemon);
    let narrow = format!("jail_read={}", dir.join("open").display());
    let daemon = start(&["-p", &narrow], PLAIN);
    assert_eq!(read(&daemon, &outside), None);
    assert_eq!(read(&daemon, &inside).as_deref(), Some("inside"));
    drop(daemon);
    let _ = fs::remove_dir_all(&dir);
}

/// Promise: environment variables of the manager reach the worker only if VCL or the operator names them.
#[test]
fn the_environment_is_clean() {
    let _slot = shared_slot();
    let mut daemon =
        start(&["-p", "jail_environment=LACQUER_TEST_CH*", "-p", "jail_dumpable=on"], WITH_SECRETS);
    let worker = daemon.worker();
    if is_root() {
        let text = fs::read(format!("/proc/{worker}/environ")).expect("the process runs");
        let text = String::from_utf8_lossy(&text).into_owned();
        for name in ["LACQUER_TEST_GIVEN", "LACQUER_TEST_OTHER", "LD_BIND_NOW", "PATH="] {
            assert!(!text.contains(name), "{name} in {text}");
        }
    }
    assert_eq!(header(&daemon, "given").as_deref(), Some("1"));
    assert_eq!(header(&daemon, "other"), None);
    assert_eq!(header(&daemon, "chosen").as_deref(), Some("3"));
}

/// Promise: only root can read the worker's memory, and a dying worker leaves no core, unless `jail_dumpable` is on.
#[test]
fn the_worker_is_not_dumpable() {
    let _slot = shared_slot();
    // In /proc, the kernel assigns the files of a process that is not dumpable to root.
    let owner = |pid: u32| fs::metadata(format!("/proc/{pid}/environ")).expect("the process runs").uid();
    for (value, dumpable) in [("off", false), ("on", true)] {
        let option = format!("jail_dumpable={value}");
        let mut daemon = start(&["-p", &option], PLAIN);
        let worker = daemon.worker();
        assert_eq!(owner(worker) == ids(worker)[0], dumpable, "{option}");
        signal(worker, "-ABRT");
        assert!(until(|| daemon.stderr().contains("died signal=6")));
        assert!(dumpable || !daemon.stderr().contains("core dumped"));
        assert!(
            until(|| daemon.cli("panic.show").1.contains("Backtrace:")),
            "there is a panic text nevertheless"
        );
    }
}

/// Promise: a daemon that root starts without the usual users does not run as root, and with `-j none` warns that it
/// does.
#[test]
fn running_as_root_is_reported() {
    let _slot = shared_slot();
    if !is_root() {
        return;
    }
    let no_users = "exec unshare --mount sh -c 'grep ^root: /etc/passwd >/tmp/lacquer-passwd.$$ && \
                    mount --bind /tmp/lacquer-passwd.$$ /etc/passwd; rm /tmp/lacquer-passwd.$$; exec \"$@\"' sh \"$@\"";
    let mut daemon = start(&[], no_users);
    assert!(daemon.stderr().contains("There is no user varnish"), "{}", daemon.stderr());
    let worker = daemon.worker();
    assert!(ids(worker).iter().all(|id| *id > 65_000), "{:?}", ids(worker));
    assert_confined(&mut daemon);
    drop(daemon);
    let daemon = start(&["-j", "none"], PLAIN);
    assert!(daemon.stderr().contains("runs as root"), "{}", daemon.stderr());
}

/// Promise: systemd rates the exposure of the unit in docs/ below 3.
#[test]
fn the_unit_is_hardened() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lacquer.service");
    let analyze =
        Command::new("systemd-analyze").args(["security", "--offline=true", "--no-pager", unit]).output();
    let Ok(output) = analyze else {
        eprintln!("skipped: systemd-analyze is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let level = text.split("Overall exposure level for lacquer.service: ").nth(1);
    let Some(level) = level.and_then(|rest| rest.split_whitespace().next()) else {
        eprintln!("skipped: systemd-analyze failed: {}", String::from_utf8_lossy(&output.stderr));
        return;
    };
    assert!(level.parse::<f64>().expect("a number") < 3.0, "{text}");
}

/// Promise: the capabilities that the unit leaves to the manager are enough.
#[test]
fn the_manager_needs_few_capabilities() {
    let _slot = shared_slot();
    if !is_root() {
        return;
    }
    let few = "exec setpriv --no-new-privs --bounding-set=-all,+net_bind_service,+setuid,+setgid,+setpcap,+chown,\
               +dac_override,+fowner,+kill \"$@\"";
    let mut daemon = start(&["-p", "cli_timeout=1"], few);
    assert_confined(&mut daemon);
    let worker = daemon.worker();
    // The manager can end a hanging worker that runs as another user, and start the next.
    signal(worker, "-STOP");
    assert!(daemon.cli("stop").0 != 0);
    assert!(until(|| fs::metadata(format!("/proc/{worker}")).is_err()), "{}", daemon.stderr());
}

/// A manager without root, which has private keys and other secrets, cannot be inspected by processes of its user and
/// dumps no core, unless `jail_dumpable` is on. The owner of its files in /proc shows which.
#[test]
fn a_manager_without_root_is_not_dumpable() {
    const USER: u32 = 65_534;
    let _slot = shared_slot();
    if !is_root() {
        return;
    }
    let script = "for word; do case $word in */name) chown 65534:65534 \"${word%/name}\";; esac; done; \
                  exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"";
    for (dumpable, owner) in [("off", 0), ("on", USER)] {
        let mut daemon = Daemon::start_by(VCL, &["-p", &format!("jail_dumpable={dumpable}")], script);
        let status = fs::metadata(format!("/proc/{}/status", daemon.manager())).expect("it runs");
        assert_eq!(status.uid(), owner, "jail_dumpable={dumpable}");
        daemon.ok("ping");
    }
}
