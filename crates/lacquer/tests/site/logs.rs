//! `lacquer run --log`, `--log-to` and `--web`: what leaves a running site besides its pages.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::time::{Duration, Instant};

use lacquer_cli::access_log::Counts;
use lacquer_testing::admin::AdminPort;
use lacquer_testing::daemon::{signal, until};
use lacquer_testing::{Folder, free_address};
use serde_json::Value;

use crate::{App, Site, lacquer};

const MINUTE: &str = "Cache-Control: max-age=60\r\n";

#[test]
fn chosen_fields_go_to_a_socket() {
    let (app, folder) = (App::start(MINUTE), Folder::new("log"));
    let path = folder.join("collector");
    let collector = UnixListener::bind(&path).expect("the path is free");
    let target = format!("unix:{}", path.display());
    let format = "json:url,status,handling,req.user-agent,resp.Cache-Control,req.none";
    let site = Site::start(&["--backend", &app.url(), "--log", format, "--log-to", &target], &[]);
    site.ask("GET", "/\"\\<b>", "User-Agent: \"a\\ b\r\n");
    let (stream, _) = collector.accept().expect("it connects");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    let line = BufReader::new(stream).lines().next().expect("a line").expect("text");
    let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert_eq!(value.as_object().map(serde_json::Map::len), Some(6), "{line}");
    assert_eq!((&value["url"], &value["req.none"]), (&Value::from("/\"\\<b>"), &Value::Null), "{line}");
    assert_eq!(site.folder.read("out"), "");
}

/// Waits until the log has the only request, whose record may follow the response.
fn is_logged(site: &Site, name: &str) -> bool {
    until(|| lacquer(&site.folder, &["log", "-n", name]).1.lines().count() == 1)
}

#[test]
fn a_log_that_cannot_be_printed_is_a_failure() {
    let app = App::start(MINUTE);
    let site = Site::start(&["--backend", &app.url()], &[]);
    site.get("/");
    let name = site.folder.join("instance").display().to_string();
    assert!(is_logged(&site, &name));
    let output = fs::OpenOptions::new().write(true).open("/dev/full").expect("it exists");
    let mut command = crate::command(&site.folder, &["log", "-n", &name]);
    let ended = command.stdout(output).output().expect("it starts");
    let err = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(2) && err.contains("cannot write to standard output"), "{err}");
}

#[test]
fn lines_that_no_socket_accepts_are_a_failure() {
    let app = App::start(MINUTE);
    let site = Site::start(&["--backend", &app.url()], &[]);
    site.get("/");
    let (name, socket) = (site.folder.join("instance"), site.folder.join("nobody"));
    let (name, to) = (name.display().to_string(), format!("unix:{}", socket.display()));
    assert!(is_logged(&site, &name));
    let (code, _, err) = lacquer(&site.folder, &["log", "-n", &name, "--to", &to]);
    assert!(code == Some(2) && err.contains("1 lines were dropped: --to does not read them"), "{err}");
    let collector = UnixListener::bind(&socket).expect("the path is free");
    let (code, _, err) = lacquer(&site.folder, &["log", "-n", &name, "--to", &to]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let (stream, _) = collector.accept().expect("it has connected");
    assert_eq!(BufReader::new(stream).lines().count(), 1);
}

#[test]
fn a_collector_that_does_not_read_holds_up_nobody() {
    let (app, folder) = (App::start(MINUTE), Folder::new("log"));
    let path = folder.join("collector");
    // It accepts nothing before the end.
    let collector = UnixListener::bind(&path).expect("the path is free");
    let target = format!("unix:{}", path.display());
    let long = format!("{{url}}{}", "x".repeat(60_000));
    let web = free_address().to_string();
    let words = ["--backend", &app.url(), "--log", &long, "--log-to", &target, "--web", &web];
    let site = Site::start(&words, &[]);
    let begun = Instant::now();
    for number in 0..120 {
        site.get(&format!("/{number}"));
    }
    assert!(until(|| site.folder.read("err").contains("lines of the access log were dropped")));
    assert_eq!(site.get("/after"), "page 121");
    let port = AdminPort::of(&site.folder.join("instance")).expect("it is published");
    let lines = || -> Option<[u64; 3]> {
        let metrics = port.ask("GET", "/metrics", "").ok()?;
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        let value = |outcome: &str| {
            let name = format!("lacquer_access_log_lines_total{{outcome=\"{outcome}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
        };
        Some([value("written")?, value("dropped")?, value("missed")?])
    };
    let are_lost = || {
        lines()
            .is_some_and(|[written, dropped, missed]| written + dropped < 121 && dropped > 0 && missed == 0)
    };
    assert!(until(are_lost), "{:?}", lines());
    // Lines are written when they are read, and neither written nor dropped while they wait.
    let (mut stream, _) = collector.accept().expect("it has connected");
    std::thread::spawn(move || io::copy(&mut stream, &mut io::sink()));
    let are_counted = || {
        lines()
            .is_some_and(|[written, dropped, missed]| written + dropped == 121 && dropped > 0 && missed == 0)
    };
    assert!(until(are_counted), "{:?}", lines());
    // Clients cannot fill the log of the service with reports.
    let (reports, minutes) =
        (site.folder.read("err").matches("so far").count(), begun.elapsed().as_secs() / 60);
    assert!(reports as u64 <= 1 + minutes, "{}", site.folder.read("err"));
}

/// A disk that is full may have room again.
#[test]
fn a_log_does_not_end_because_its_output_is_full() {
    let _turn = crate::turn();
    let (app, folder) = (App::start(MINUTE), Folder::new("log"));
    let address = free_address();
    let (listen, name) = (address.to_string(), folder.join("instance").display().to_string());
    let words = ["run", "--listen", &listen, "--name", &name, "--backend", &app.url(), "--log", "{url}"];
    let output = fs::OpenOptions::new().write(true).open("/dev/full").expect("it exists");
    let err = fs::File::create(folder.join("err")).expect("a file");
    let mut run = crate::command(&folder, &words).stdout(output).stderr(err).spawn().expect("it starts");
    let is_up = (0..4).any(|_| until(|| folder.read("err").contains("Lacquer is serving")));
    let counts = || Counts::parse(&folder.read("instance/_.access_log")).unwrap_or_default();
    let mut all_counted = is_up;
    for number in 1..=3 {
        all_counted = all_counted
            && lacquer_testing::client::get(address, &format!("/{number}")).is_ok()
            && until(|| counts() == Counts { dropped: number, ..Counts::default() });
    }
    let (found, err) = (counts(), folder.read("err"));
    signal(run.id(), "-TERM");
    run.wait().expect("it ends");
    assert!(all_counted, "{found:?} {err}");
    assert!(err.contains("cannot be written: ") && !err.contains("has ended"), "{err}");
}

#[test]
fn the_system_log_gets_a_message_for_each_request() {
    let (app, folder) = (App::start(MINUTE), Folder::new("log"));
    let path = folder.join("syslog");
    let server = UnixDatagram::bind(&path).expect("the path is free");
    server.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    let target = format!("syslog:{}", path.display());
    let site = Site::start(&["--backend", &app.url(), "--log", "combined", "--log-to", &target], &[]);
    site.ask("GET", "/page", "Referer: http://a/\"\r\n");
    let mut bytes = [0; 1000];
    let length = server.recv(&mut bytes).expect("a message");
    let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
    assert!(text.starts_with("<134>lacquer[") && text.contains("/page HTTP/1.1\" 200 "), "{text}");
    assert!(text.contains("\"http://a/\\\"\""), "{text}");
}

/// Returns the processes that attend a site, each with its parent: the supervisor, and the one that writes the log.
fn attendants(site: &Site) -> Vec<(u32, u32)> {
    let instance = site.folder.join("instance").display().to_string();
    let ids = fs::read_dir("/proc").expect("it is mounted").flatten().filter_map(|entry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let words = fs::read_to_string(format!("/proc/{id}/cmdline")).ok()?;
        words.contains(&format!("\0attend\0{instance}\0")).then_some(id)
    });
    let parent = |id| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        Some((id, parent))
    };
    ids.filter_map(parent).collect()
}

#[test]
fn a_log_survives_its_processes() {
    let app = App::start(MINUTE);
    let mut site = Site::start(&["--backend", &app.url(), "--log", "{url}"], &[]);
    let has = |site: &Site, line: &str| until(|| site.folder.read("out").lines().any(|found| found == line));
    site.get("/first");
    assert!(has(&site, "/first"));
    let all = attendants(&site);
    let is_child = |(_, parent): &&(u32, u32)| all.iter().any(|(id, _)| id == parent);
    let writer = all.iter().find(is_child).expect("it has a supervisor").0;
    let supervisor = all.iter().find(|found| !is_child(found)).expect("the supervisor").0;
    let counts = || Counts::parse(&site.folder.read("instance/_.access_log"));
    assert!(
        until(|| counts() == Some(Counts { written: 1, dropped: 0, missed: 0, earlier: 0 })),
        "{:?}",
        counts()
    );
    signal(writer, "-KILL");
    assert!(until(|| site.folder.read("err").contains("is started again")), "{}", site.folder.read("err"));
    let mut number: u64 = 0;
    assert!(until(|| {
        number += 1;
        site.get(&format!("/again/{number}"));
        site.folder.read("out").contains("/again/")
    }));
    // Those that were served meanwhile have no line. The daemon's own count may be a little late.
    let are_counted = || {
        let lines = site.folder.read("out").matches("/again/").count() as u64;
        let lacking = 1..=number - lines;
        counts()
            .is_some_and(|now| now.written == 1 + lines && lacking.contains(&now.missed) && now.dropped == 0)
    };
    assert!(until(are_counted), "{number}: {:?}", counts());
    signal(supervisor, "-KILL");
    site.get("/alone");
    assert!(has(&site, "/alone"));
    assert_eq!(site.folder.read("out").matches("/first").count(), 1, "no line is written twice");
    site.end("-INT");
    assert!(until(|| site.folder.read("err").contains("Lacquer served ")));
    assert!(until(|| attendants(&site).is_empty()));
    assert_eq!(Counts::parse(&site.folder.read("instance/_.access_log")), None);
}

#[test]
fn mistakes_in_formats_and_targets_are_explained() {
    let folder = Folder::new("log");
    for (words, why) in [
        (&["--log", "json:url,nothing"][..], "there is no field `nothing`"),
        (&["--log", "json", "--log-to", "file:/x"], "unix:/PATH"),
        (&["--log-to", "syslog"], "--log-to needs --log"),
        (&["--web", "x"], "--web x"),
    ] {
        let words = [&["run", "--backend", "127.0.0.1:9", "--listen", "127.0.0.1:1"], words].concat();
        let (code, _, err) = lacquer(&folder, &words);
        assert!(code == Some(2) && err.contains(why), "{words:?}: {err}");
    }
}

#[test]
fn the_dashboard_of_a_site_is_named_at_its_start() {
    let app = App::start(MINUTE);
    let port = free_address().port().to_string();
    let site = Site::start(&["--backend", &app.url(), "--web", &port], &[]);
    let started = site.folder.read("out");
    assert!(
        started.contains(&format!("http://127.0.0.1:{port}/")) && started.contains("_.token"),
        "{started}"
    );
    let found = AdminPort::of(&site.folder.join("instance")).expect("it is published");
    assert!(until(|| found.ask("GET", "/api/v1/vcl", "").is_ok_and(|reply| reply.status == 200)));
}
