//! Tests that Varnish's own tools read what this crate writes: fills a working directory with both segment directories,
//! like the manager and the worker, and runs the tools of 7.7.
//!
//! The tools are searched in `LACQUER_VARNISH_TOOLS`, then in `/opt/vt77/bin`; without them the tests are skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use lacquer_shm::vsc::{Lck, LocalMain, LocalSet, Mgt, Sma, Vbe};
use lacquer_shm::vsl::Field;
use lacquer_shm::vsm::{CHILD_DIR_MODE, CHILD_DIRNAME, MGT_DIR_MODE, MGT_DIRNAME, Owner, VsmDir};
use lacquer_shm::{Log, Main, Numbering, Segment, Tag, TxLog, Vxid};

const NOW: f64 = 1_700_000_000.25;

fn tools() -> Option<PathBuf> {
    let dir = std::env::var_os("LACQUER_VARNISH_TOOLS").map_or_else(|| "/opt/vt77/bin".into(), PathBuf::from);
    if dir.join("varnishlog").exists() {
        return Some(dir);
    }
    eprintln!("skipped: no Varnish tools in {}", dir.display());
    None
}

/// A temporary working directory, removed when dropped.
struct Workdir(PathBuf);

impl Workdir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("lacquer-shm-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a temporary directory can be created");
        Self(dir)
    }

    fn vsm(&self, name: &str, mode: u32) -> VsmDir {
        let owner = Owner { pid: std::process::id(), birth: NOW as u64 };
        VsmDir::create(&self.0.join(name), mode, owner).expect("a segment directory can be created")
    }

    fn run(&self, tools: &Path, tool: &str, args: &[&str]) -> String {
        // Tools wait for a log if they find none, so their time is limited.
        let mut command = Command::new("timeout");
        command.arg("30").arg(tools.join(tool)).arg("-n").arg(&self.0).args(args);
        let out = command.output().expect("tool runs");
        assert!(out.status.success(), "{tool} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("the output is ASCII")
    }
}

impl Drop for Workdir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The shared memory of both processes when the worker logs.
struct Logging {
    _dirs: [VsmDir; 2],
    _mgt: Segment<Mgt>,
    main: Arc<Segment<Main>>,
    log: Arc<Log>,
}

impl Logging {
    fn new(dir: &Workdir) -> Self {
        let mgt_dir = dir.vsm(MGT_DIRNAME, MGT_DIR_MODE);
        let mgt = Segment::create(&mgt_dir, "").expect("room");
        let child_dir = dir.vsm(CHILD_DIRNAME, CHILD_DIR_MODE);
        let main = Arc::new(Segment::<Main>::create(&child_dir, "").expect("room"));
        let log = Log::create(&child_dir, 0, Numbering::default(), main.clone()).expect("room");
        Self { _dirs: [mgt_dir, child_dir], _mgt: mgt, main, log }
    }
}

/// Logs a session with one request, a hit, like the worker.
fn log_request(tx: &mut TxLog, session: u64, url: &[u8]) {
    let (sess, req) = (Vxid::client(session), Vxid::client(session + 1));
    tx.begin(req);
    tx.put_relation(Tag::Begin, "req", sess, "rxreq");
    tx.put_timestamp("Start", NOW, NOW, NOW);
    tx.put_timestamp("Req", NOW, NOW, NOW);
    tx.put(Tag::VCL_use, b"boot");
    tx.put_fields(Tag::ReqStart, &[Field::Text(b"192.0.2.7"), Field::Number(4711), Field::Text(b"a0")]);
    tx.put(Tag::ReqMethod, b"GET");
    tx.put(Tag::ReqURL, url);
    tx.put(Tag::ReqProtocol, b"HTTP/1.1");
    tx.put(Tag::ReqHeader, b"Host: example.com");
    tx.put(Tag::ReqHeader, b"User-Agent: probe/1");
    tx.put(Tag::VCL_call, b"RECV");
    tx.put(Tag::VCL_return, b"hash");
    tx.put(Tag::Hash, b"masked by default");
    let [ttl, grace, keep] = [119.5, 10.0, 0.0].map(Field::Seconds);
    tx.put_fields(Tag::Hit, &[Field::Number(7), ttl, grace, keep]);
    tx.put(Tag::VCL_call, b"HIT");
    tx.put(Tag::VCL_return, b"deliver");
    tx.put(Tag::RespProtocol, b"HTTP/1.1");
    tx.put(Tag::RespStatus, b"200");
    tx.put(Tag::RespReason, b"OK");
    tx.put(Tag::RespHeader, b"Content-Length: 1234");
    tx.put_timestamp("Process", NOW + 0.5, NOW, NOW);
    tx.put_timestamp("Resp", NOW + 1.0, NOW, NOW + 0.5);
    tx.put_fmt(Tag::ReqAcct, format_args!("{} 0 {0} 200 1234 {}", 80, 1434));
    tx.end();

    tx.begin(sess);
    tx.put_relation(Tag::Begin, "sess", Vxid::NONE, "HTTP/1");
    let ends = Field::Text(b"192.0.2.7 4711 a0 192.0.2.1 80");
    tx.put_fields(Tag::SessOpen, &[ends, Field::Seconds(NOW), Field::Number(23)]);
    tx.put_relation(Tag::Link, "req", req, "rxreq");
    tx.put_fields(Tag::SessClose, &[Field::Text(b"REM_CLOSE"), Field::Seconds(0.001)]);
    tx.end();
}

#[test]
fn varnishstat_shows_the_counters() {
    let Some(tools) = tools() else { return };
    let dir = Workdir::new("stat");
    let mgt_dir = dir.vsm(MGT_DIRNAME, MGT_DIR_MODE);
    let child_dir = dir.vsm(CHILD_DIRNAME, CHILD_DIR_MODE);
    let mgt = Segment::<Mgt>::create(&mgt_dir, "").expect("room");
    let main = Segment::<Main>::create(&child_dir, "").expect("room");
    let sma = Segment::<Sma>::create(&child_dir, "s0").expect("room");
    let lck = Segment::<Lck>::create(&child_dir, "ban").expect("room");
    let cluster = child_dir.cluster(2 * Segment::<Vbe>::size(), "vcl_boot").expect("room");
    let one = Segment::<Vbe>::create_in(&child_dir, Some(&cluster), "boot.one").expect("room");
    let two = Segment::<Vbe>::create_in(&child_dir, Some(&cluster), "boot.two").expect("room");
    let cold = Segment::<Vbe>::create(&child_dir, "boot.cold").expect("room");

    mgt.child_start.add(1);
    sma.g_space.set(256 << 20);
    lck.creat.add(2);
    one.happy.set(u64::MAX);
    two.conn.add(3);
    two.conn.sub(1);
    cold.hide();
    let local = LocalMain::default();
    local.cache_hit.add(41);
    local.n_object.add(2);
    local.n_object.sub(1);
    local.http1_absolute_form.add(5);
    local.flush(&main);
    local.cache_hit.add(1);
    local.flush(&main);

    let text = dir.run(&tools, "varnishstat", &["-1"]);
    let value = |name: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.and_then(|line| line.split_whitespace().nth(1)).map(str::to_owned)
    };
    for (name, expected) in [
        ("MGT.child_start", "1"),
        ("MAIN.cache_hit", "42"),
        ("MAIN.n_object", "1"),
        ("MAIN.http1_absolute_form", "5"),
        ("MAIN.cache_miss", "0"),
        ("SMA.s0.g_space", "268435456"),
        ("LCK.ban.creat", "2"),
        ("VBE.boot.two.conn", "2"),
    ] {
        assert_eq!(value(name).as_deref(), Some(expected), "{name}");
    }
    assert_eq!(value("VBE.boot.cold.conn"), None, "hidden");
    cold.reveal();
    drop(one);

    let json = dir.run(&tools, "varnishstat", &["-j"]);
    assert!(json.contains("\"VBE.boot.cold.conn\"") && json.contains("\"VBE.boot.two.conn\""));
    assert!(!json.contains("\"VBE.boot.one.conn\""), "destroyed");
    assert!(json.contains("\"format\": \"b\"") && json.contains("\"flag\": \"g\""), "{json}");
}

#[test]
fn readers_follow_added_and_removed_segments() {
    let Some(tools) = tools() else { return };
    let dir = Workdir::new("churn");
    let mgt_dir = dir.vsm(MGT_DIRNAME, MGT_DIR_MODE);
    let child_dir = dir.vsm(CHILD_DIRNAME, CHILD_DIR_MODE);
    let _arg = mgt_dir.publish("Arg", "-T", b"127.0.0.1 6082\n\0").expect("room");
    let _main = Segment::<Main>::create(&child_dir, "").expect("room");
    let mut kept = Vec::new();
    for round in 0..100 {
        let backend =
            Segment::<Vbe>::create(&child_dir, &format!("boot.odd name \"{round}\"")).expect("room");
        if round % 25 == 0 {
            kept.push(backend);
        }
    }
    let text = dir.run(&tools, "varnishstat", &["-1", "-f", "VBE.*.conn"]);
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.contains("VBE.boot.odd_name__75_.conn"), "{text}");
    let files = std::fs::read_dir(dir.0.join(CHILD_DIRNAME)).expect("directory").count();
    // The index, MAIN and its description, four backends and theirs.
    assert_eq!(files, 8);
}

#[test]
fn varnishlog_and_varnishncsa_show_the_log() {
    let Some(tools) = tools() else { return };
    let dir = Workdir::new("log");
    let Logging { main, log, .. } = &Logging::new(&dir);
    log.write(Tag::CLI, Vxid::NONE, b"Rd ping");
    let mut tx = log.transaction();
    log_request(&mut tx, 1, b"/hello?q=\"1\"");

    let text = dir.run(&tools, "varnishlog", &["-d", "-g", "request"]);
    for line in [
        "*   << Request  >> 2",
        "-   Begin          req 1 rxreq",
        "-   Timestamp      Process: 1700000000.750000 0.500000 0.500000",
        "-   ReqStart       192.0.2.7 4711 a0",
        "-   ReqURL         /hello?q=\"1\"",
        "-   ReqHeader      Host: example.com",
        "-   Hit            7 119.500000 10.000000 0.000000",
        "-   ReqAcct        80 0 80 200 1234 1434",
        "-   End            ",
    ] {
        assert!(text.lines().any(|l| l.trim_end() == line.trim_end()), "no {line:?} in\n{text}");
    }
    assert!(!text.contains("masked by default"));
    let raw = dir.run(&tools, "varnishlog", &["-d", "-g", "raw"]);
    assert!(raw.lines().any(|l| l.split_whitespace().eq(["0", "CLI", "-", "Rd", "ping"])), "{raw}");
    let session = dir.run(&tools, "varnishlog", &["-d", "-g", "session", "-q", "ReqURL ~ hello"]);
    assert!(session.contains("<< Session  >> 1") && session.contains("**  << Request  >> 2"), "{session}");

    let line =
        dir.run(&tools, "varnishncsa", &["-d", "-F", "%h %r %s %b %{Varnish:hitmiss}x %{User-agent}i %D"]);
    assert_eq!(
        line,
        "192.0.2.7 GET http://example.com/hello?q=\\\"1\\\" HTTP/1.1 200 1234 hit probe/1 1000000\n"
    );
    assert_eq!((main.shm_writes.get(), main.shm_records.get()), (3, 29));
}

#[test]
fn readers_follow_a_wrapped_ring() {
    let Some(tools) = tools() else { return };
    let dir = Workdir::new("ring");
    let Logging { main, log, .. } = &Logging::new(&dir);
    let mut tx = log.transaction();
    for i in 0..4000 {
        log_request(&mut tx, 2 * i + 1, format!("/{i}").as_bytes());
    }
    assert!(main.shm_cycles.get() >= 2, "the ring wrapped");
    let text = dir.run(&tools, "varnishncsa", &["-d", "-F", "%U"]);
    let urls: Vec<&str> = text.lines().collect();
    assert!(urls.len() > 300, "most of five segments: {}", urls.len());
    assert_eq!(urls.last(), Some(&"/3999"));
    let first: usize = urls[0][1..].parse().expect("a number");
    assert!(
        urls.iter().enumerate().all(|(i, url)| **url == format!("/{}", first + i)),
        "none lost, in order"
    );
}
