//! Tests against servers that are faulty or malicious. The test `redis` of this crate uses a real server.

mod attacks;
mod fake;
mod health;
mod parser;
mod tls;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::database::{Database, Login, Order, Outcome, Protocol, Settings};
use super::reply::Reply;
use super::request::Request;
use super::server::Role;

/// The time limit of a test for what must be fast.
const SOON: Duration = Duration::from_mins(2);

fn login(protocol: Protocol, user: &str, password: &str) -> Login {
    Login { protocol, user: user.to_owned(), password: password.to_owned() }
}

fn settings() -> Settings {
    Settings {
        connection_timeout: Duration::from_mins(1),
        connection_ttl: 0.0,
        command_timeout: Duration::from_mins(1),
        retries: 0,
        is_shared: true,
        max_connections: 2,
        tls: None,
        login: login(Protocol::Default, "", ""),
        sickness_ttl: 60.0,
        ignores_slaves: false,
        is_debugged: false,
    }
}

fn database(places: &[(&str, Role)], settings: Settings) -> Arc<Database> {
    let database = Database::new("db", settings);
    for (place, role) in places {
        database.add_server(place, *role, &[]).expect("a place");
    }
    Arc::new(database)
}

/// Runs a future, for a limited time.
fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(SOON, work).await.expect("it ends in time") })
}

fn order(database: &Database, words: &[&str]) -> Order {
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    Order {
        request: Request::new(&words),
        timeout: database.settings.command_timeout,
        retries: database.settings.retries,
        master: true,
        lane: 0,
    }
}

async fn execute(database: &Database, words: &[&str]) -> Outcome {
    database.execute(order(database, words)).await
}

/// Executes GET with settings, and returns the only fault. There must be no reply.
fn fault_of(place: &str, settings: Settings) -> String {
    let database = database(&[(place, Role::Master)], settings);
    let outcome = run(execute(&database, &["GET", "key"]));
    assert_eq!((outcome.reply, outcome.faults.len()), (None, 1));
    assert_eq!(database.counters.get("commands.failed"), Some(1));
    outcome.faults.concat()
}

fn text(text: &str) -> Option<Reply> {
    Some(Reply::Text(text.as_bytes().to_vec()))
}
