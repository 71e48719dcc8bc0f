//! Servers that hang, close, lie, or send without end. Each costs limited time and memory and gives no reply.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::fake::{Answer, Fake, bytes};
use super::{database, execute, fault_of, login, run, settings, text};
use crate::redis::connection::{Connection, Idle};
use crate::redis::database::{Protocol, Settings};
use crate::redis::location::Location;
use crate::redis::reply::Reply;
use crate::redis::server::Role;

const SHORT: Duration = Duration::from_millis(200);

#[test]
fn a_server_that_hangs_costs_the_time_limit() {
    let fake = Fake::start(|_| Answer::Silence);
    let begun = Instant::now();
    let fault = fault_of(&fake.place, Settings { command_timeout: SHORT, ..settings() });
    assert!(begun.elapsed() >= SHORT);
    assert_eq!(fault, format!("redis: db: GET: {}: no reply came within 200 ms", fake.place));
}

#[test]
fn a_server_that_hangs_during_authentication_counts_as_unreachable() {
    let fake = Fake::start(|_| Answer::Silence);
    let login = login(Protocol::Default, "", "p");
    let fault = fault_of(&fake.place, Settings { connection_timeout: SHORT, login, ..settings() });
    assert!(fault.ends_with("cannot connect within 200 ms; the server counts as sick for 60 s"), "{fault}");
}

#[test]
fn progress_does_not_extend_the_time_limit() {
    let fake = Fake::start(|_| Answer::Drip(b'+'));
    let fault = fault_of(&fake.place, Settings { command_timeout: SHORT, ..settings() });
    assert!(fault.contains("no reply came within 200 ms"), "{fault}");
}

#[test]
fn a_reply_that_is_cut_off_is_none() {
    for cut in ["", "+", "+OK", "+OK\r", "$5\r\nab", "*2\r\n:1\r\n", "*1\r\n"] {
        let fake = Fake::start(move |_| Answer::Last(cut.as_bytes().to_vec()));
        let fault = fault_of(&fake.place, settings());
        assert!(
            fault.contains("closed the connection") || fault.contains("the connection failed"),
            "{fault}"
        );
    }
}

#[test]
fn malformed_replies_are_none() {
    for (reply, why) in [
        ("HTTP/1.1 200 OK\r\n\r\n", "not of Redis's protocol: HTTP/1.1 200 OK"),
        ("$9223372036854775807\r\n", "larger than the limit"),
        ("$9223372036854775808\r\n", "out of range"),
        (":170141183460469231731687303715884105728\r\n", "out of range"),
        ("*9223372036854775807\r\n", "more than 65536 elements"),
        ("+OK\r\n+OK\r\n", "more than one reply"),
        ("\u{1b}[2J\r\n", "not of Redis's protocol: \\u{1b}[2J"),
    ] {
        let fake = Fake::constant(reply);
        let fault = fault_of(&fake.place, settings());
        assert!(fault.contains(why), "{fault}");
    }
    let fake = Fake::constant("*1\r\n*1\r\n*1\r\n*1\r\n");
    let fault = fault_of(&fake.place, Settings { command_timeout: SHORT, ..settings() });
    assert!(fault.contains("no reply came within"), "{fault}");
}

#[test]
fn endless_replies_end_at_a_limit() {
    for (part, why) in [
        ("*1\r\n", "more than 32 nested arrays"),
        ("*1000\r\n", "more than 32 nested arrays"),
        ("x", "a line of the reply is longer than"),
        (">1\r\n+message\r\n", "larger than 4194304 bytes"),
        ("|1\r\n+a\r\n+b\r\n", "larger than 4194304 bytes"),
    ] {
        let fake = Fake::start(move |_| Answer::Endless(part.repeat(1000).into_bytes()));
        let fault = fault_of(&fake.place, settings());
        assert!(fault.contains(why) || fault.contains("elements"), "{part:?}: {fault}");
    }
}

#[test]
fn a_faulty_connection_is_replaced() {
    let fake = Fake::start(|command| match command {
        "GET nonsense" => bytes("nonsense\r\n"),
        "GET twice" => bytes("+1\r\n+2\r\n"),
        "GET last" => Answer::Last(b"$4\r\nlast\r\n".to_vec()),
        _ => bytes("$4\r\ngood\r\n"),
    });
    let database = database(&[(&fake.place, Role::Master)], settings());
    run(async {
        assert_eq!(execute(&database, &["GET", "nonsense"]).await.reply, None);
        assert_eq!(execute(&database, &["GET", "key"]).await.reply, text("good"));
        assert_eq!(execute(&database, &["GET", "twice"]).await.reply, None);
        // The second reply of the last command must not be that of this one.
        assert_eq!(execute(&database, &["GET", "key"]).await.reply, text("good"));
        assert_eq!(fake.connections(), 3);
        assert_eq!(execute(&database, &["GET", "last"]).await.reply, text("last"));
        // The connection ends while it is idle, or while the next command is sent.
        while execute(&database, &["GET", "key"]).await.reply != text("good") {}
    });
    let dropped = |reason| database.counters.get(reason).expect("a counter");
    assert_eq!(dropped("connections.dropped.error") + dropped("connections.dropped.hung_up"), 3);
}

#[test]
fn connections_that_end_or_receive_bytes_while_they_are_idle_are_not_used() {
    let (connected, connections) = mpsc::channel();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let place = listener.local_addr().expect("it is bound").to_string();
    let accepting = std::thread::spawn(move || {
        for _ in 0..3 {
            connected.send(listener.accept().expect("a connection").0).expect("the test listens");
        }
    });
    run(async {
        let location = Location::parse(&place).expect("a place");
        let mut idle = Connection::open(&location, None).await.expect("it connects");
        assert_eq!(idle.check(), Idle::Usable);
        let mut closed = Connection::open(&location, None).await.expect("it connects");
        let mut surplus = Connection::open(&location, None).await.expect("it connects");
        let mut sockets: Vec<TcpStream> = (0..3).map(|_| connections.recv().expect("three")).collect();
        sockets[2].write_all(b"+OK\r\n").expect("it is open");
        drop(sockets.remove(1));
        while closed.check() == Idle::Usable || surplus.check() == Idle::Usable {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(idle.check(), Idle::Usable);
    });
    accepting.join().expect("it ends");
}

#[test]
fn a_task_that_ends_takes_its_connection_with_it() {
    let fake = Fake::start(|command| match command {
        "GET slow" => Answer::Silence,
        _ => bytes("$4\r\ngood\r\n"),
    });
    let database = database(&[(&fake.place, Role::Master)], Settings { max_connections: 1, ..settings() });
    run(async {
        let given_up = tokio::time::timeout(SHORT, execute(&database, &["GET", "slow"])).await;
        assert!(given_up.is_err());
        // Its permit is free, and its connection is not used again.
        assert_eq!(execute(&database, &["GET", "key"]).await.reply, text("good"));
    });
    assert_eq!(fake.connections(), 2);
}

#[test]
fn commands_wait_for_one_of_the_connections() {
    let fake = Fake::start(|command| {
        std::thread::sleep(Duration::from_millis(20));
        bytes(&format!("$5\r\n{}\r\n", &command[4..]))
    });
    let database = database(&[(&fake.place, Role::Master)], settings());
    run(async {
        let keys: Vec<String> = (0..20).map(|n| format!("key{n:02}")).collect();
        let mut tasks = tokio::task::JoinSet::new();
        for key in keys {
            let database = database.clone();
            tasks.spawn(async move {
                let outcome = execute(&database, &["GET", &key]).await;
                assert_eq!(outcome.reply, text(&key), "{:?}", outcome.faults);
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("no task panics");
        }
    });
    assert_eq!(fake.connections(), 2);
    assert_eq!(database.counters.get("workers.blocked"), Some(18));
    assert_eq!(database.counters.get("connections.total"), Some(2));
}

#[test]
fn the_wait_for_a_connection_is_limited() {
    let fake = Fake::start(|_| Answer::Silence);
    let settings = Settings { max_connections: 1, command_timeout: SHORT, ..settings() };
    let database = database(&[(&fake.place, Role::Master)], settings);
    let mut long = super::order(&database, &["GET", "long"]);
    long.timeout = Duration::from_secs(5);
    let outcome = run(async {
        tokio::select! {
            _ = database.execute(long) => panic!("there is no reply"),
            outcome = async {
                tokio::task::yield_now().await;
                execute(&database, &["GET", "key"]).await
            } => outcome,
        }
    });
    assert!(
        outcome.faults.concat().contains("no connection became free within 200 ms"),
        "{:?}",
        outcome.faults
    );
}

#[test]
fn refused_authentication_is_a_failure_without_the_password() {
    let fake = Fake::start(|command| match command {
        "AUTH joe secret" | "HELLO 3 AUTH default secret" => bytes("-WRONGPASS invalid\r\n"),
        _ => bytes("+OK\r\n"),
    });
    let fault = |login| fault_of(&fake.place, Settings { login, ..settings() });
    let refused = fault(login(Protocol::Default, "joe", "secret"));
    assert!(refused.contains("the server refuses AUTH: WRONGPASS invalid"), "{refused}");
    let refused = fault(login(Protocol::Resp3, "", "secret"));
    assert!(refused.contains("the server refuses HELLO: WRONGPASS invalid"), "{refused}");
    assert!(!refused.contains("secret"), "{refused}");
    // A status is no reply to HELLO.
    let refused = fault(login(Protocol::Resp2, "", ""));
    assert!(refused.contains("the server refuses HELLO: OK"), "{refused}");
}

#[test]
fn a_server_that_never_knows_the_script_is_asked_twice() {
    let fake = Fake::constant("-NOSCRIPT No matching script\r\n");
    let database = database(&[(&fake.place, Role::Master)], settings());
    let outcome = run(execute(&database, &["eval", "return 1", "0"]));
    assert!(matches!(outcome.reply, Some(Reply::Error(_))));
    assert_eq!(fake.commands(), ["EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0", "eval return 1 0"]);
    assert_eq!(database.counters.get("commands.noscript"), Some(1));
    assert_eq!(database.counters.get("commands.error"), Some(1));
}

#[test]
fn a_full_backlog_costs_the_time_limit() {
    // Nobody accepts, so that the kernel completes the connections but nobody answers.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let place = listener.local_addr().expect("it is bound").to_string();
    let fault = fault_of(&place, Settings { command_timeout: SHORT, ..settings() });
    assert!(fault.contains("no reply came within 200 ms"), "{fault}");
}
