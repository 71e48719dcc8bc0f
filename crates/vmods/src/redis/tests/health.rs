//! Servers that cannot be connected to, roles, and the choice among several servers.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::fake::{Fake, bytes};
use super::{database, execute, order, run, settings, text};
use crate::redis::database::{Database, Settings};
use crate::redis::reply::Reply;
use crate::redis::server::Role;
use crate::redis::weights;

/// Returns a place at which nobody listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").to_string()
}

#[test]
fn a_sick_server_is_left_alone() {
    let place = nobody();
    let database = database(&[(&place, Role::Master)], settings());
    run(async {
        let first = execute(&database, &["GET", "key"]).await.faults.concat();
        assert!(first.contains("cannot connect") && first.contains("sick for 60 s"), "{first}");
        let second = execute(&database, &["GET", "key"]).await.faults.concat();
        assert!(second.contains("no server can be used") && second.contains("is sick for"), "{second}");
    });
    assert_eq!(database.counters.get("connections.failed"), Some(1));
}

#[test]
fn a_sick_server_is_tried_again_after_its_time() {
    let database = database(&[(&nobody(), Role::Master)], Settings { sickness_ttl: 0.1, ..settings() });
    run(async {
        execute(&database, &["GET", "key"]).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let second = execute(&database, &["GET", "key"]).await.faults.concat();
        assert!(second.contains("cannot connect"), "{second}");
    });
    assert_eq!(database.counters.get("connections.failed"), Some(2));
}

#[test]
fn without_sickness_each_command_tries_again() {
    let database =
        database(&[(&nobody(), Role::Master)], Settings { sickness_ttl: 0.0, retries: 2, ..settings() });
    let outcome = run(execute(&database, &["GET", "key"]));
    assert_eq!((outcome.reply, outcome.faults.len()), (None, 3));
    assert_eq!(database.counters.get("commands.retried"), Some(2));
}

#[test]
fn a_retry_uses_another_server() {
    let good = Fake::constant("$4\r\ngood\r\n");
    let servers = [(nobody(), Role::Master), (good.place.clone(), Role::Master)];
    let servers: Vec<(&str, Role)> = servers.iter().map(|(place, role)| (place.as_str(), *role)).collect();
    let database = database(&servers, Settings { retries: 1, ..settings() });
    run(async {
        for _ in 0..4 {
            assert_eq!(execute(&database, &["GET", "key"]).await.reply, text("good"));
        }
    });
    assert_eq!(database.counters.get("connections.failed"), Some(1));
}

#[test]
fn a_database_without_servers_fails_at_once() {
    let outcome = run(execute(&database(&[], settings()), &["GET", "key"]));
    assert!(outcome.reply.is_none() && outcome.faults.concat().contains("has no server"));
}

#[test]
fn masters_and_slaves_get_the_commands_for_them() {
    let (master, slave) = (Fake::constant("$6\r\nmaster\r\n"), Fake::constant("$5\r\nslave\r\n"));
    let servers = [(master.place.as_str(), Role::Master), (slave.place.as_str(), Role::Slave)];
    let both = database(&servers, settings());
    let any = |database: &Database| super::Order { master: false, ..order(database, &["GET", "key"]) };
    run(async {
        for _ in 0..3 {
            assert_eq!(execute(&both, &["GET", "key"]).await.reply, text("master"));
            assert_eq!(both.execute(any(&both)).await.reply, text("slave"));
        }
        let ignoring = database(&servers, Settings { ignores_slaves: true, ..settings() });
        assert_eq!(ignoring.execute(any(&ignoring)).await.reply, text("master"));
        let only_slave = database(&servers[1..], settings());
        let fault = execute(&only_slave, &["GET", "key"]).await.faults.concat();
        assert!(fault.contains("is a slave"), "{fault}");
    });
}

#[test]
fn servers_with_lower_weights_come_first_and_equal_ones_in_turn() {
    let near = [Fake::constant("$4\r\nnear\r\n"), Fake::constant("$4\r\nnear\r\n")];
    let far = Fake::constant("$3\r\nfar\r\n");
    let rules = weights::places(&format!("1 ^{}$\n0 .", far.place)).expect("rules");
    let database = Database::new("db", settings());
    for fake in [&far, &near[0], &near[1]] {
        database.add_server(&fake.place, Role::Master, &rules).expect("a place");
    }
    run(async {
        for _ in 0..6 {
            assert_eq!(execute(&database, &["GET", "key"]).await.reply, text("near"));
        }
    });
    assert!(near.iter().all(|fake| fake.commands().len() >= 2) && far.commands().is_empty());
}

#[test]
fn roles_are_asked_for_with_each_connection() {
    let role = |role: &str| format!("*2\r\n${}\r\n{role}\r\n:0\r\n", role.len());
    let answer = |own: &str| {
        let (role, own) = (role(own), own.to_owned());
        Fake::start(move |command| match command {
            "ROLE" => bytes(&role),
            _ if own == "slave" => bytes("-READONLY You can't write\r\n"),
            _ => bytes("+OK\r\n"),
        })
    };
    let (slave, master) = (answer("slave"), answer("master"));
    let database = database(&[(&slave.place, Role::Unknown), (&master.place, Role::Unknown)], settings());
    run(async {
        for _ in 0..3 {
            let outcome = execute(&database, &["SET", "a", "b"]).await;
            assert_eq!(outcome.reply, Some(Reply::Status(b"OK".to_vec())), "{:?}", outcome.faults);
        }
    });
    assert_eq!(slave.commands(), ["ROLE"]);
    assert_eq!(master.commands()[0], "ROLE");
}

#[test]
fn a_master_that_became_a_slave_is_not_used_again() {
    let is_slave = AtomicBool::new(false);
    let fake = Fake::start(move |command| match command {
        "ROLE" if is_slave.load(Ordering::Relaxed) => bytes("*1\r\n$5\r\nslave\r\n"),
        "ROLE" => bytes("*1\r\n$6\r\nmaster\r\n"),
        _ => {
            is_slave.store(true, Ordering::Relaxed);
            bytes("-READONLY You can't write\r\n")
        }
    });
    let database = database(&[(&fake.place, Role::Unknown)], settings());
    run(async {
        assert!(matches!(execute(&database, &["SET", "a", "b"]).await.reply, Some(Reply::Error(_))));
        let outcome = execute(&database, &["SET", "a", "b"]).await;
        assert!(outcome.reply.is_none(), "{:?}", outcome.faults);
    });
    assert_eq!(fake.commands().iter().filter(|command| *command != "ROLE").count(), 1);
}

#[test]
fn a_server_that_refuses_to_tell_its_role_is_used() {
    let fake = Fake::start(|command| match command {
        "ROLE" => bytes("-NOPERM\r\n"),
        _ => bytes("+OK\r\n"),
    });
    let database = database(&[(&fake.place, Role::Unknown)], settings());
    let outcome = run(execute(&database, &["SET", "a", "b"]));
    assert_eq!(outcome.reply, Some(Reply::Status(b"OK".to_vec())));
    assert_eq!(outcome.notes.len(), 1, "{:?}", outcome.notes);
}

#[test]
fn connections_end_with_their_time() {
    let fake = Fake::constant("$4\r\ngood\r\n");
    let database = database(&[(&fake.place, Role::Master)], Settings { connection_ttl: 0.1, ..settings() });
    run(async {
        assert_eq!(execute(&database, &["GET", "key"]).await.reply, text("good"));
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(execute(&database, &["GET", "key"]).await.reply, text("good"));
        database.close_idle();
        assert_eq!(execute(&database, &["GET", "key"]).await.reply, text("good"));
    });
    assert_eq!((fake.connections(), database.counters.get("connections.dropped.ttl")), (3, Some(1)));
}

#[test]
fn servers_are_limited_in_number() {
    let database = Database::new("db", settings());
    for port in 1..=256 {
        database.add_server(&format!("192.0.2.1:{port}"), Role::Slave, &[]).expect("there is room");
    }
    // A known place needs no room.
    database.add_server("192.0.2.1:1", Role::Master, &[]).expect("it exists");
    let fault = database.add_server("192.0.2.1:257", Role::Slave, &[]).expect_err("there is no room");
    assert_eq!(fault, "there are 256 servers already");
}

#[test]
fn a_connection_in_another_state_is_not_used_again() {
    for (command, is_kept) in [
        ("MULTI", false),
        ("select", false),
        ("SUBSCRIBE", false),
        ("WATCH", false),
        ("GET", true),
        ("EXEC", true),
    ] {
        let fake = Fake::start(|_| bytes("+OK\r\n"));
        let database = database(&[(&fake.place, Role::Master)], settings());
        let next = run(async {
            execute(&database, &[command, "x"]).await;
            execute(&database, &["GET", "key"]).await
        });
        assert_eq!(next.reply, Some(Reply::Status(b"OK".to_vec())));
        let connections = if is_kept { 1 } else { 2 };
        assert_eq!(database.counters.get("connections.total"), Some(connections), "{command}");
    }
}
