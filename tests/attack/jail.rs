//! The jail: how little a worker could do that was taken over.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use lacquer_testing::client::get;
use lacquer_testing::daemon::{Daemon, is_root, signal, until};
use lacquer_testing::slots::shared_slot;

/// Reads files and variables for the client that names them, and runs a regular expression.
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
    // A request has used every reactor's memory and the machine code of VCL and of the regular expression.
    assert_eq!(get(daemon.address, "/abbac").expect("an answer").status, 201);
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
    let answer = get(daemon.address, "/").expect("an answer");
    answer.header(name).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Promise: every thread of the worker is without privileges, filtered, and has no memory to write code to.
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

/// Promise: a worker that makes a call it does not need ends, and the manager shows which call it was.
#[test]
fn a_violation_leaves_the_name_of_the_call() {
    let _slot = shared_slot();
    let mut daemon = start(&[], PLAIN);
    let before = daemon.worker();
    daemon.cli("debug.jail");
    assert!(until(|| daemon.cli("panic.show").0 == 200), "there are last words");
    let shown = daemon.ok("panic.show");
    for part in
        ["signal 31 (Bad system call)", "forbids the worker to call execve", "Backtrace:", "pthread.name"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(until(|| daemon.ok("pid").contains("Worker")), "another worker runs");
    assert_ne!(daemon.worker(), before);
}

/// Promise: the parameters that open the jail work, and the log says so in one line.
#[test]
fn an_open_jail_is_reported() {
    let _slot = shared_slot();
    let mut daemon = start(&["-p", "jail_syscalls=off", "-p", "jail_files=off"], PLAIN);
    assert_eq!(status(daemon.worker(), "Seccomp"), "0");
    assert!(daemon.ok("debug.jail").contains("does not forbid"));
    assert_eq!(daemon.stderr().matches("jail is incomplete").count(), 1, "{}", daemon.stderr());
}

/// Promise: VCL reads files by their paths, and only those that the administrator leaves to it.
#[test]
fn files_are_read_as_far_as_is_allowed() {
    let _slot = shared_slot();
    let dir = std::env::temp_dir().join(format!("lacquer-jail-{}", std::process::id()));
    fs::create_dir_all(dir.join("open")).expect("a directory");
    let (outside, inside) = (dir.join("text"), dir.join("open/text"));
    fs::write(&outside, "outside").expect("a file");
    fs::write(&inside, "inside").expect("a file");
    let read = |daemon: &Daemon, path: &std::path::Path| {
        let mut client = lacquer_testing::client::Client::connect(daemon.address).expect("a connection");
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nPath: {}\r\n\r\n", path.display());
        let answer = client.ask(&request).expect("an answer");
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

/// Promise: variables of the manager reach the worker only where VCL or the administrator names them.
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

/// Promise: a worker's memory is for root only, and a dying worker leaves no core, unless that is asked for.
#[test]
fn the_worker_is_not_dumpable() {
    let _slot = shared_slot();
    // The kernel gives the files of a process that is not dumpable to root.
    let owner = |pid: u32| fs::metadata(format!("/proc/{pid}/environ")).expect("the process runs").uid();
    for (value, dumpable) in [("off", false), ("on", true)] {
        let option = format!("jail_dumpable={value}");
        let mut daemon = start(&["-p", &option], PLAIN);
        let worker = daemon.worker();
        assert_eq!(owner(worker) == ids(worker)[0], dumpable, "{option}");
        signal(worker, "-ABRT");
        assert!(until(|| daemon.stderr().contains("died signal=6")));
        assert!(dumpable || !daemon.stderr().contains("core dumped"));
        assert!(until(|| daemon.cli("panic.show").1.contains("Backtrace:")), "last words all the same");
    }
}

/// Promise: root without the usual users does not run as root, and with `-j none` says that it does.
#[test]
fn root_is_never_kept_in_silence() {
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

/// Promise: the unit in docs/ leaves a service an exposure below 3, by systemd's own measure.
#[test]
fn the_unit_is_hardened() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lacquer.service");
    let analyze =
        Command::new("systemd-analyze").args(["security", "--offline=true", "--no-pager", unit]).output();
    let Ok(output) = analyze else {
        eprintln!("no systemd-analyze here");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let level = text.split("Overall exposure level for lacquer.service: ").nth(1);
    let Some(level) = level.and_then(|rest| rest.split_whitespace().next()) else {
        eprintln!("no verdict: {}", String::from_utf8_lossy(&output.stderr));
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
    // It can end a worker of another user that hangs, and start the next.
    signal(worker, "-STOP");
    assert!(daemon.cli("stop").0 != 0);
    assert!(until(|| fs::metadata(format!("/proc/{worker}")).is_err()), "{}", daemon.stderr());
}
