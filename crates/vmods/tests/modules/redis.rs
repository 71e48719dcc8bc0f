//! The module redis with a real server, if the program `redis-server` is installed, and programs that fail to load.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_vcl::types::{Action, Method};
use lacquer_vcl_native::LoadedVcl;
use lacquer_vcl_runtime::Ctx;

use crate::host::{Transaction, compile};

/// A server at a UNIX socket in a folder of its own.
struct Server {
    process: Child,
    folder: PathBuf,
}

impl Server {
    /// Starts a server, or prints why the test is skipped.
    fn start(options: &[&str]) -> Option<Server> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("lacquer-redis-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("socket");
        let path = path.to_str().expect("an ASCII path");
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            "0",
            "--unixsocket",
            path,
            "--save",
            "",
            "--appendonly",
            "no",
            "--daemonize",
            "no",
        ]);
        command.args(options).current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::null());
        let process = match command.spawn() {
            Ok(process) => process,
            Err(error) => {
                println!(
                    "skipped: redis-server cannot be started: {error}; install the package redis-server"
                );
                let _ = fs::remove_dir_all(&folder);
                return None;
            }
        };
        let server = Server { process, folder };
        let begun = Instant::now();
        while std::os::unix::net::UnixStream::connect(server.path()).is_err() {
            assert!(begun.elapsed() < Duration::from_mins(1), "redis-server does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    fn path(&self) -> String {
        self.folder.join("socket").to_string_lossy().into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn load(text: &str) -> Result<LoadedVcl, String> {
    let loaded = compile(&format!("import redis;\n{text}"));
    let mut host = Transaction::new(Method::Init);
    loaded.init(&mut host).map_err(|why| why + &host.logged().join("\n"))?;
    Ok(loaded)
}

/// Runs vcl_recv. Returns its headers and its log.
fn recv(loaded: &LoadedVcl) -> (Transaction, String) {
    let mut request = Transaction::new(Method::Recv);
    let action = loaded.run(Method::Recv, &mut Ctx::new(&mut request, loaded.instance()));
    let log = request.logged().join("\n");
    assert_eq!(action, Action::Hash, "{log}");
    (request, log)
}

/// Runs statements after a command, and compares the headers that they set with texts.
fn check(init: &str, cases: &[(&str, &[(&str, &str)])]) {
    for (command, expressions) in cases {
        let mut text = format!("sub vcl_init {{ {init} }}\nsub vcl_recv {{ {command}\n");
        for (i, (expression, _)) in expressions.iter().enumerate() {
            let _ = writeln!(text, "set req.http.x{i} = {expression};");
        }
        let loaded = load(&(text + "return (hash); }")).expect("it loads");
        let (request, log) = recv(&loaded);
        for (i, (expression, expected)) in expressions.iter().enumerate() {
            let found = request.header_text(&format!("x{i}")).unwrap_or_default();
            assert_eq!(found, *expected, "{command} {expression}\n{log}");
        }
    }
}

#[test]
fn commands_reach_a_real_server() {
    let Some(server) = Server::start(&[]) else { return };
    let init = format!(
        "new db = redis.db(\"{}\", connection_timeout = 60000, command_timeout = 60000);",
        server.path()
    );
    check(
        &init,
        &[
            (
                "db.command(\"SET\"); db.push(\"a\"); db.push(\"one two\"); db.execute();",
                &[
                    ("db.replied()", "true"),
                    ("db.reply_is_status()", "true"),
                    ("db.get_status_reply()", "OK"),
                    ("db.get_reply()", "OK"),
                    ("db.get_string_reply()", "(undefined)"),
                    ("db.reply_is_string()", "false"),
                ],
            ),
            (
                "redis.use(\"db\"); redis.easy_execute(\"GET\", \"a\", timeout = 60000, retries = 1);",
                &[
                    ("redis.reply_is_string()", "true"),
                    ("redis.get_string_reply()", "one two"),
                    ("db.get_string_reply()", "one two"),
                    ("redis.get_reply(db = \"db\")", "one two"),
                ],
            ),
            (
                "db.easy_execute(\"GET\", \"none\");",
                &[("db.reply_is_nil()", "true"), ("db.get_reply()", "(undefined)")],
            ),
            (
                "db.easy_execute(\"INCRBY\", \"n\", \"-9223372036854775807\");",
                &[("db.reply_is_integer()", "true"), ("db.get_reply()", "-9223372036854775807")],
            ),
        ],
    );
}

#[test]
fn arrays_and_scripts_reach_a_real_server() {
    let Some(server) = Server::start(&[]) else { return };
    let init = format!(
        "new db = redis.db(\"{}\", connection_timeout = 60000, command_timeout = 60000);",
        server.path()
    );
    check(
        &init,
        &[
            ("db.easy_execute(\"SET\", \"a\", \"one two\");", &[("db.get_reply()", "OK")]),
            (
                "db.easy_execute(\"MGET\", \"a\", \"none\", \"a\");",
                &[
                    ("db.reply_is_array()", "true"),
                    ("db.get_array_reply_length()", "3"),
                    ("db.get_array_reply_value(0)", "one two"),
                    ("db.array_reply_is_nil(1)", "true"),
                    ("db.array_reply_is_string(2)", "true"),
                    ("db.get_array_reply_value(3)", "(undefined)"),
                    ("db.get_array_reply_value(-1)", "(undefined)"),
                    ("db.get_reply()", "(undefined)"),
                ],
            ),
            (
                "db.easy_execute(\"EVAL\", \"return {KEYS[1], {1, 2}, 7}\", \"1\", \"key\");",
                &[
                    ("db.get_array_reply_value(0)", "key"),
                    ("db.array_reply_is_array(1)", "true"),
                    ("db.array_reply_is_integer(2)", "true"),
                    ("db.get_array_reply_value(2)", "7"),
                    ("db.counter(\"commands.noscript\")", "1"),
                ],
            ),
            (
                "db.easy_execute(\"EVAL\", \"return {KEYS[1], {1, 2}, 7}\", \"1\", \"key\");",
                &[("db.get_array_reply_value(0)", "key"), ("db.counter(\"commands.noscript\")", "0")],
            ),
            (
                "db.easy_execute(\"NONSENSE\");",
                &[("db.reply_is_error()", "true"), ("db.counter(\"commands.error\")", "1")],
            ),
            (
                "db.easy_execute(\"PING\"); db.free();",
                &[("db.replied()", "false"), ("db.get_reply()", "(undefined)")],
            ),
        ],
    );
}

#[test]
fn resp3_has_more_types() {
    let Some(server) = Server::start(&["--requirepass", "secret"]) else { return };
    let init = format!(
        "new db = redis.db(\"{}\", type = master, protocol = RESP3, password = \"secret\", connection_timeout = 60000, command_timeout = 60000);",
        server.path()
    );
    check(
        &init,
        &[
            (
                "db.easy_execute(\"EVAL\", \"redis.setresp(3); return {map = {a = 'b'}}\", \"0\");",
                &[("db.reply_is_array()", "true"), ("db.get_array_reply_length()", "2")],
            ),
            (
                "db.easy_execute(\"EVAL\", \"redis.setresp(3); return {double = 1.5}\", \"0\");",
                &[
                    ("db.reply_is_double()", "true"),
                    ("db.get_double_reply()", "1.500"),
                    ("db.get_reply()", "1.5"),
                ],
            ),
            (
                "db.easy_execute(\"EVAL\", \"redis.setresp(3); return true\", \"0\");",
                &[
                    ("db.reply_is_boolean()", "true"),
                    ("db.get_boolean_reply()", "true"),
                    ("db.get_reply()", "1"),
                ],
            ),
        ],
    );
    let init = init.replace("secret", "wrong");
    check(&init, &[("db.easy_execute(\"PING\");", &[("db.replied()", "false")])]);
}

#[test]
fn replies_that_vcl_cannot_hold_are_undefined() {
    let Some(server) = Server::start(&[]) else { return };
    let text = format!(
        "sub vcl_init {{ new db = redis.db(\"{}\", connection_timeout = 60000, command_timeout = 60000, shared_connections = false); }}
         sub vcl_recv {{
           db.easy_execute(\"EVAL\", \"return 'a' .. string.char(0) .. 'b'\", \"0\");
           set req.http.value = db.get_reply();
           db.command(\"\");
           db.execute();
           set req.http.replied = db.replied();
           db.push(\"x\");
           set req.http.counter = db.counter(\"none\");
           redis.execute(db = \"other\");
           redis.use(\"other\");
           return (hash);
         }}",
        server.path()
    );
    let (request, log) = recv(&load(&text).expect("it loads"));
    assert_eq!(request.header_text("value").as_deref(), Some("(undefined)"));
    assert_eq!(request.header_text("replied").as_deref(), Some("false"));
    for why in [
        "VCL_Error redis: db: the reply contains a NUL",
        "VCL_Error redis: db: command() without a name",
        "VCL_Error redis: db: execute() without command()",
        "VCL_Error redis: db: push() without command()",
        "VCL_Error redis: db: there is no counter \"none\"",
        "VCL_Error redis: there is no such database: \"other\"",
        "VCL_Error redis: there is no database \"other\"",
    ] {
        assert!(log.contains(why), "{why} is not in:\n{log}");
    }
}

#[test]
fn the_counters_have_texts() {
    let text = "sub vcl_init { new db = redis.db(\"127.0.0.1:1\", connection_timeout = 60000); }
        sub vcl_recv {
          db.easy_execute(\"PING\");
          set req.http.json = db.stats();
          set req.http.lines = redis.stats(prometheus, db = \"db\", prometheus_extra_labels = {\"a=\"b\"\"});
          set req.http.failed = db.counter(\"commands.failed\");
          return (hash);
        }";
    let (request, log) = recv(&load(text).expect("it loads"));
    assert_eq!(request.header_text("failed").as_deref(), Some("1"), "{log}");
    assert!(request.header_text("json").is_some_and(|json| json.contains("\"connections\":{")));
    let lines = request.header_text("lines").unwrap_or_default();
    assert!(lines.contains("vmod_redis_commands_failed{a=\"b\",name=\"db\"} 1\n"), "{lines}");
}

#[test]
fn what_is_not_supported_fails_the_load() {
    for (init, why) in [
        ("redis.sentinels(\"127.0.0.1:1\");", "Redis Sentinel is not supported"),
        ("new db = redis.db(\"127.0.0.1:1\", cluster);", "redis.db db: Redis Cluster is not supported"),
        ("new db = redis.db(); db.add_server(\"127.0.0.1:1\", cluster);", "Redis Cluster is not supported"),
        (
            "new db = redis.db(\"localhost\");",
            "\"localhost\" is neither HOST:PORT nor the path of a UNIX socket",
        ),
        ("new db = redis.db(max_connections = 0);", "max_connections must be from 1"),
        ("new db = redis.db(command_timeout = -1);", "command_timeout must not be negative"),
        ("new db = redis.db(connection_ttl = -1);", "connection_ttl must not be negative"),
        ("new db = redis.db(max_command_retries = 101);", "max_command_retries must be from 0 to 100"),
        ("new db = redis.db(user = \"joe\");", "user needs a password"),
        ("new db = redis.db(tls_cafile = \"/x\");", "but tls is false"),
        ("new db = redis.db(tls = true, tls_cafile = \"/none\");", "/none: No such file"),
        ("redis.subnets(\"9 127.0.0.1/8\");", "\"9\" is not a weight from 0 to 3"),
        ("redis.weights(\"0 (\");", "redis.weights(): "),
        ("new db = redis.db(); redis.subnets(\"0 127.0.0.1/8\");", "before the first redis.db()"),
        ("redis.subnets(\"0 127.0.0.1/8\"); redis.weights(\"0 a\");", "rules were set already"),
    ] {
        let fault = load(&format!("sub vcl_init {{ {init} }}")).err().expect(init);
        assert!(fault.contains(why), "{init}: {fault}");
    }
}
