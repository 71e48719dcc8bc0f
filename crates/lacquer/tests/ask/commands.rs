//! `lacquer purge`, `ban`, `vcl`, `param`, `stat` and `log`, with a real daemon.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lacquer_testing::client::get;
use lacquer_testing::daemon::{is_root, program, signal};
use lacquer_testing::management::{ManagementPort, published};
use lacquer_testing::{Folder, copy_program, until};
use serde_json::json;

use crate::{Site, lacquer, on};

const SUBS: &str = "";

/// Varnish's tool does the same.
#[test]
fn truncated_replies_are_shown() {
    let site = Site::start(SUBS, &["-p", "cli_limit=1000"]);
    let ran = site.run(&["cli", "param.show"]);
    assert!((500..=1100).contains(&ran.out.len()) && ran.err.contains("[response was truncated]"), "{ran:?}");
    let ran = site.run(&["vcl", "list"]);
    assert!(ran.err.is_empty(), "{ran:?}");
    let name = site.daemon.directory();
    let ran = lacquer(&["param", "--json", "-n", name.to_str().expect("text")]);
    assert!(ran.code != Some(0) && ran.err.contains("the reply is truncated"), "{ran:?}");
}

#[test]
fn purges_and_bans_remove_pages() {
    let site = Site::start(SUBS, &[]);
    let host = site.daemon.address.to_string();
    site.expect("/minute/a", &[], "miss", "");
    assert_eq!(site.run(&["purge", "/minute/b"]).out, "purged /minute/b\n");
    site.expect("/minute/a", &[], "hit", "");
    let ran = site.run(&["purge", &format!("http://{host}/minute/a"), "--json"]).json();
    assert_eq!(ran["purged"], format!("{host}/minute/a"));
    site.expect("/minute/a", &[], "miss-banned", "req.http.host");
    site.run(&["ban", "req.url", "~", "^/minute/ && obj.http.Cache-Control ~ \"max-age=60\""]);
    site.expect("/minute/a", &[], "miss-banned", "obj.http.Cache-Control");
    let wrong = lacquer(&["ban", "nonsense", "-n", site.daemon.directory().to_str().expect("text")]);
    assert!(wrong.code == Some(2) && wrong.err.contains("the daemon refuses `ban`"), "{wrong:?}");
}

#[test]
fn tags_remove_all_their_pages() {
    let tags = "sub vcl_backend_response { set beresp.http.xkey = bereq.http.tags; set beresp.grace = 1m; }";
    let site = Site::start(tags, &[]);
    let ask = |path: &str, expected: &str| site.expect(path, &["-H", "tags: red, green"], expected, "");
    ask("/minute/a", "miss");
    ask("/minute/b", "miss");
    assert_eq!(site.run(&["tag", "gree", "blue"]).out, "purged 0 objects with gree, blue\n");
    ask("/minute/a", "hit");
    assert_eq!(site.run(&["tag", "green", "red"]).out, "purged 2 objects with green, red\n");
    site.expect("/minute/a", &["-H", "tags: red, green"], "miss-tagged", "by its tag red");
    let ran = site.run(&["tag", "red", "--soft", "--json"]).json();
    assert_eq!(ran, serde_json::json!({"tags": ["red"], "purged": 1}));
    ask("/minute/a", "graced-hit");
    let name = site.daemon.directory();
    let wrong = lacquer(&["tag", "a,b", "-n", name.to_str().expect("text")]);
    assert!(wrong.code == Some(2) && wrong.err.contains("is not a tag"), "{wrong:?}");
    assert_eq!(lacquer(&["tag", "-n", name.to_str().expect("text")]).code, Some(2));
}

#[test]
fn vcls_are_loaded_used_and_discarded() {
    let site = Site::start(SUBS, &[]);
    let folder = site.daemon.directory();
    let file = folder.join("new site.vcl");
    fs::write(&file, "vcl 4.1; backend default none; sub vcl_recv { return (synth(299)); }")
        .expect("written");
    let path = file.to_str().expect("text");
    assert!(site.run(&["vcl", "load", path, "--as", "second"]).out.contains("loaded: second"));
    assert!(site.run(&["vcl", "list"]).out.contains("second"));
    site.run(&["vcl", "use", "second"]);
    site.expect("/", &[], "synth", "299");
    let loaded = site.run(&["vcl", "load", "--use", path, "--json"]).json();
    assert_eq!(loaded["used"], true);
    site.run(&["vcl", "discard", "second"]);
    assert!(!site.run(&["vcl", "list", "--json"]).json().to_string().contains("second"));
    fs::write(&file, "vcl 4.1; backend default none; sub vcl_recv { return (nothing); }").expect("written");
    let wrong = lacquer(&["vcl", "load", path, "-n", folder.to_str().expect("text")]);
    assert!(wrong.code == Some(2) && wrong.err.contains("nothing"), "{wrong:?}");
    // Another machine receives the text.
    let port = ManagementPort::of(&folder).expect("it is published").address.to_string();
    let secret = published(&folder, "-S").expect("it is published");
    fs::write(&file, "vcl 4.1; backend default none; # \"a\\\n").expect("written");
    let remote = lacquer(&["vcl", "load", path, "--as", "far", "--address", &port, "--secret", &secret]);
    assert_eq!(remote.code, Some(0), "{remote:?}");
    let refused = lacquer(&["vcl", "list", "--address", &port]);
    assert!(refused.code == Some(2) && refused.err.contains("--secret"), "{refused:?}");
    let wrong = lacquer(&["vcl", "list", "--address", &site.daemon.address.to_string()]);
    assert!(wrong.code == Some(2), "{wrong:?}");
}

#[test]
fn parameters_are_shown_and_set() {
    let site = Site::start(SUBS, &[]);
    assert!(site.run(&["param", "default_ttl", "77"]).out.contains("77.000"));
    assert!(site.run(&["param", "default_ttl", "--json"]).json().to_string().contains("77"));
    assert!(site.run(&["param", "--reset", "default_ttl"]).out.contains("120.000"));
    assert!(site.run(&["param"]).out.contains("vsl_space"));
    let wrong = lacquer(&["param", "nonsense", "1", "-n", site.daemon.directory().to_str().expect("text")]);
    assert!(wrong.code == Some(2) && wrong.err.contains("param.set"), "{wrong:?}");
    let name = site.daemon.directory();
    for words in [&["param", "thread_pool_maxx", "9"][..], &["param", "thread_pool_maxx"]] {
        let ran = lacquer(&[words, &["-n", name.to_str().expect("text")]].concat());
        assert!(ran.code == Some(2) && ran.err.contains("Did you mean \"thread_pool_max\"?"), "{ran:?}");
    }
}

#[test]
fn any_command_of_the_management_port_can_be_sent() {
    let site = Site::start(SUBS, &[]);
    assert!(site.run(&["cli", "ping"]).out.starts_with("PONG"));
    assert!(site.run(&["cli", "--json", "backend.list"]).json().to_string().contains("backend.list"));
    let folder = site.daemon.directory();
    let folder = folder.to_str().expect("text");
    assert!(lacquer(&["cli", "-n", folder, "--", "backend.list", "-j"]).json().is_array());
    assert!(site.run(&["cli", "ban", "req.url", "~", "a b\"c"]).out.trim().is_empty());
    assert!(site.run(&["cli", "ban.list"]).out.contains("a b"));
    let wrong = lacquer(&["cli", "nonsense", "-n", folder]);
    assert!(wrong.code == Some(2) && wrong.err.contains("nonsense"), "{wrong:?}");
}

#[test]
fn counters_and_requests_are_listed() {
    let site = Site::start(SUBS, &[]);
    for path in ["/minute/a", "/minute/a", "/error", "/minute/%1b"] {
        assert!(get(site.daemon.address, path).is_ok());
    }
    // The counters and the lines of a request may follow its response.
    assert!(until(|| site.run(&["stat", "cache_hit"]).out.contains(" 1  ")));
    assert!(until(|| {
        site.run(&["stat", "cache_miss", "--json"]).json()["MAIN.cache_miss"]["value"] == 3
    }));
    let lines = |words: &[&str]| site.run(&[&["log"], words].concat()).out;
    assert!(until(|| lines(&[]).lines().count() == 4), "{}", lines(&[]));
    assert!(lines(&["--lines", "1"]).contains("/minute/%1b"));
    assert_eq!(lines(&["--misses"]).lines().count(), 3);
    assert!(lines(&["--status", "5xx"]).contains("/error"));
    assert_eq!(lines(&["--url", "/minute/a"]).lines().count(), 2);
    let both = lines(&["--json", "--url", "/minute/a"]);
    let handling = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        line["handling"].as_str().map(str::to_owned)
    };
    // A line is written when its transaction ends, which is after the client has its response.
    let mut handled: Vec<_> = both.lines().filter_map(handling).collect();
    handled.sort();
    assert_eq!(handled, ["hit", "miss"]);
}

#[test]
fn new_requests_are_followed_until_the_pipe_closes() {
    let site = Site::start(SUBS, &[]);
    let mut follower = Command::new(env!("CARGO_BIN_EXE_lacquer"))
        .args(["log", "--follow", "--lines", "0", "-n"])
        .arg(site.daemon.directory())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut out = BufReader::new(follower.stdout.take().expect("it is a pipe"));
    let mut line = String::new();
    // The follower may begin after many requests. Its last line fails, and ends it.
    let (address, pid, has_ended) = (site.daemon.address, follower.id(), AtomicBool::new(false));
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            let deadline = Instant::now() + Duration::from_mins(2);
            for number in 0.. {
                std::thread::sleep(Duration::from_millis(50));
                if has_ended.load(Ordering::Relaxed) {
                    return;
                }
                let _ = get(address, &format!("/minute/{number}"));
                if Instant::now() > deadline {
                    return signal(pid, "-KILL");
                }
            }
        });
        out.read_line(&mut line).expect("it writes");
        drop(out);
        let ended = follower.wait().expect("it ends");
        has_ended.store(true, Ordering::Relaxed);
        ended
    });
    assert!(ended.success(), "{ended}");
    assert!(line.contains("/minute/") && line.contains("miss"), "{line}");
}

/// As with `tail -F`: the follower waits for the next worker and for the next daemon, and says so.
#[test]
fn the_log_is_followed_over_restarts() {
    let folder = Folder::new("ask-follow");
    let vcl = folder.file("site.vcl", "vcl 4.1; backend default none; sub vcl_recv { return (synth(200)); }");
    let (socket, name) = (folder.join("socket"), folder.join("name"));
    let start = || {
        let mut daemon = Command::new(program());
        daemon.arg("-F").arg("-a").arg(&socket).arg("-n").arg(&name).arg("-f").arg(&vcl);
        daemon.args(["-s", "malloc,16M"]).stderr(File::create(folder.join("daemon")).expect("writable"));
        daemon.spawn().expect("it starts")
    };
    let ask = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let mut response = String::new();
        let asked = UnixStream::connect(&socket).and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            stream.write_all(request.as_bytes())?;
            stream.read_to_string(&mut response)
        });
        asked.is_ok() && response.starts_with("HTTP/1.1 200")
    };
    let has = |file: &str, text: &str| until(|| folder.read(file).contains(text));
    let mut daemon = start();
    assert!(until(|| ask("/start")), "{}", folder.read("daemon"));
    let file = |name: &str| File::create(folder.join(name)).expect("writable");
    let follower = Command::new(env!("CARGO_BIN_EXE_lacquer"))
        .args(["log", "--follow", "-n"])
        .arg(&name)
        .stdout(file("out"))
        .stderr(file("err"))
        .spawn()
        .expect("it starts");
    assert!(has("out", "/start"));
    on(&name, &["cli", "stop"]);
    on(&name, &["cli", "start"]);
    assert!(until(|| ask("/second")) && has("out", "/second"), "{}", folder.read("err"));
    assert_eq!(folder.read("err"), "lacquer: another worker runs; its requests follow\n");
    signal(daemon.id(), "-TERM");
    daemon.wait().expect("it ends");
    assert!(has("err", "; waiting until it runs again\n"), "{}", folder.read("err"));
    let daemon = start();
    assert!(until(|| ask("/third")) && has("out", "/third"), "{}", folder.read("err"));
    let err = folder.read("err");
    assert!(
        err.lines().count() == 3 && err.ends_with("the daemon runs again; its requests follow\n"),
        "{err}"
    );
    for mut process in [follower, daemon] {
        signal(process.id(), "-TERM");
        process.wait().expect("it ends");
    }
}

/// With --json, the error is an object too, on standard error, and the exit code is the same.
#[test]
fn errors_of_commands_with_json_are_json() {
    for (words, place, error, hint) in [
        (&["stat", "--json", "-n", "/nonexistent"][..], "stat -n /nonexistent", "no daemon runs", "-n DIR"),
        (&["log", "-n", "/nonexistent", "--json"], "log -n /nonexistent", "no daemon runs", "-n DIR"),
        (&["top", "--json", "--interval", "x"], "top", "--interval needs", "lacquer top"),
        (&["why", "--json", "ftp://x/"], "why", "scheme", "http"),
        (&["param", "--json", "--nope"], "param", "no option --nope", "--help"),
        (
            &["ban", "--json", "--address", "127.0.0.1:1", "req.url ~ ."],
            "ban --address 127.0.0.1:1",
            "cannot reach",
            "-T",
        ),
    ] {
        let ran = lacquer(words);
        let found: serde_json::Value = serde_json::from_str(&ran.err).expect("one object");
        assert_eq!(
            (ran.code, ran.out.as_str(), &found["where"]),
            (Some(2), "", &json!(format!("lacquer {place}"))),
            "{ran:?}"
        );
        for (field, text) in [("error", error), ("hint", hint)] {
            assert!(found[field].as_str().is_some_and(|found| found.contains(text)), "{words:?}: {found}");
        }
    }
    let text = lacquer(&["stat", "-n", "/nonexistent", "--", "--json"]).err;
    assert!(text.starts_with("lacquer: "), "{text}");
}

/// Commands that read shared memory say why they cannot reach another machine, and what to do.
#[test]
fn commands_that_need_the_daemons_machine_say_so() {
    for (command, instead) in
        [("stat", "/metrics"), ("log", "--to tcp:HOST:PORT"), ("top", "dashboard"), ("why", "X-Lacquer-Why")]
    {
        for option in ["--address=10.0.0.1:6082", "--secret=/etc/secret"] {
            let ran = lacquer(&[command, option]);
            let err = ran.err.replace("\n         ", " ");
            assert_eq!(ran.code, Some(2), "{ran:?}");
            let why = "it reads the shared memory of a daemon on this machine";
            assert!(err.contains(why) && err.contains(instead), "{err}");
            assert!(err.contains(&format!("run `lacquer {command}` on that machine")), "{err}");
        }
        assert!(!lacquer(&[command, "--help"]).out.contains("--address"));
    }
}

/// A user who may not read the daemon's files is told whose they are. Only root can become another user for the test.
#[test]
fn another_user_is_told_whose_daemon_it_is() {
    if !is_root() {
        return;
    }
    let site = Site::start(SUBS, &[]);
    let directory = site.daemon.directory();
    let name = directory.to_str().expect("text");
    // The other user may not read the folder of this build.
    let folder = Folder::new("ask-copy");
    let copy = folder.join("lacquer");
    copy_program(Path::new(env!("CARGO_BIN_EXE_lacquer")), &copy);
    for words in [
        &["vcl", "list", "-n", name][..],
        &["vcl", "load", "/dev/null", "-n", name],
        &["reload", "/dev/null", "-n", name],
        &["reload", "/dev/null", "--name", name],
        &["log", "-n", name],
        &["stat", "-n", name],
    ] {
        let output = Command::new(&copy).args(words).uid(65534).gid(65534).output().expect("it starts");
        let err = String::from_utf8_lossy(&output.stderr).replace("\n         ", " ");
        assert_eq!(output.status.code(), Some(2), "{words:?}: {err}");
        assert!(err.contains(" belongs to the user ") && err.contains(", and you are "), "{words:?}: {err}");
        assert!(err.contains("run the command as root (sudo), as "), "{words:?}: {err}");
    }
    let output = Command::new(&copy).args(["upgrade", "-n", name]).uid(65534).gid(65534).output();
    let output = output.expect("it starts");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && err.contains("belongs to another user"), "{err}");
}

#[test]
fn help_texts_fit_a_page() {
    let names = [
        "why",
        "log",
        "stat",
        "top",
        "purge",
        "tag",
        "ban",
        "vcl load",
        "vcl use",
        "vcl list",
        "vcl discard",
        "param",
    ];
    for name in names {
        let words: Vec<&str> = ["help"].into_iter().chain(name.split(' ')).collect();
        let ran = lacquer(&words);
        assert!(ran.out.contains(&format!("Usage: lacquer {name}")), "{ran:?}");
        assert!(ran.out.lines().all(|line| line.chars().count() <= 100), "{}", ran.out);
    }
}
