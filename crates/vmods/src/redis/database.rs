//! A database: its servers, and the execution of commands on one of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use lacquer_sources::clock;
use tokio::time::timeout;

use super::connection::Connection;
use super::counters::{Counter, Counters};
use super::location::Location;
use super::parser::shown;
use super::reply::Reply;
use super::request::{Request, encode};
use super::server::{Lane, Role, Server};
use super::tls::Tls;
use super::weights::{self, Rule};

/// The maximum number of servers of a database, which requests could otherwise add without end.
const MOST_SERVERS: usize = 256;

/// The maximum number of servers in a message.
const MOST_NAMED: usize = 5;

/// The version of the protocol that connections ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    /// That of the server, without a question.
    Default,
    Resp2,
    Resp3,
}

/// The first messages of each connection.
#[derive(Clone)]
pub(super) struct Login {
    pub protocol: Protocol,
    /// Empty for the default user.
    pub user: String,
    /// Empty for a connection without authentication.
    pub password: String,
}

/// The settings of a database. Times in seconds are 0 for none.
pub(super) struct Settings {
    pub connection_timeout: Duration,
    pub connection_ttl: f64,
    pub command_timeout: Duration,
    pub retries: u32,
    pub is_shared: bool,
    pub max_connections: usize,
    pub tls: Option<Tls>,
    pub login: Login,
    pub sickness_ttl: f64,
    pub ignores_slaves: bool,
    pub is_debugged: bool,
}

pub(super) struct Database {
    pub name: String,
    pub settings: Settings,
    pub counters: Counters,
    servers: RwLock<Vec<Arc<Server>>>,
    /// The number of commands, by which equal servers are used in turn.
    turn: AtomicUsize,
}

/// A command to execute.
pub(super) struct Order {
    pub request: Request,
    pub timeout: Duration,
    pub retries: u32,
    /// Slaves are not used.
    pub master: bool,
    /// The lane of connections: one for all reactors, or one for each.
    pub lane: u64,
}

/// The result of a command: its reply if there was one, and messages for the log.
#[derive(Default)]
pub(super) struct Outcome {
    pub reply: Option<Reply>,
    pub faults: Vec<String>,
    pub notes: Vec<String>,
}

/// The result of one attempt on one server.
enum Attempt {
    Replied(Reply),
    /// The server turned out to be a slave.
    Unfit,
    Failed(String),
}

impl Database {
    pub(super) fn new(name: &str, settings: Settings) -> Database {
        Database {
            name: name.to_owned(),
            settings,
            counters: Counters::default(),
            servers: RwLock::default(),
            turn: AtomicUsize::new(0),
        }
    }

    /// Adds a server, or changes the role of the one at this place.
    pub(super) fn add_server(&self, place: &str, role: Role, rules: &[Rule]) -> Result<(), String> {
        let location = Location::parse(place)?;
        let mut servers = self.servers.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = servers.iter().find(|server| server.location == location) {
            known.set_role(role);
            known.recovered();
            return Ok(());
        }
        if servers.len() >= MOST_SERVERS {
            return Err(format!("there are {MOST_SERVERS} servers already"));
        }
        let tls = self.settings.tls.as_ref().map(|tls| tls.for_server(&location)).transpose()?;
        let weight = weights::of(rules, place, &location);
        servers.push(Arc::new(Server::new(place, location, weight, role, tls)));
        self.counters.add(Counter::Servers);
        Ok(())
    }

    /// Closes all idle connections.
    pub(super) fn close_idle(&self) {
        let servers = self.servers.read().unwrap_or_else(PoisonError::into_inner);
        servers.iter().for_each(|server| server.close_idle());
    }

    /// Returns the servers for a command, the best first: healthy ones by weight and role, equal ones in turn. If there
    /// is none, fails with the reason.
    fn plan(&self, master: bool) -> Result<VecDeque<Arc<Server>>, String> {
        let now = clock::monotonic();
        let servers = self.servers.read().unwrap_or_else(PoisonError::into_inner);
        let fits = |server: &&Arc<Server>| {
            server.sick_for(now) == 0.0 && !(master && server.role(now) == Role::Slave)
        };
        let mut usable: Vec<Arc<Server>> = servers.iter().filter(fits).cloned().collect();
        if usable.is_empty() {
            return Err(reasons(&servers, now));
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % usable.len();
        usable.rotate_left(turn);
        usable.sort_by_key(|server| match server.role(now) {
            role if master => (u8::from(role != Role::Master), server.weight),
            Role::Slave => (server.weight, 0),
            Role::Master => (server.weight, 1),
            Role::Unknown => (server.weight, 2),
        });
        Ok(usable.into())
    }

    /// Executes a command on the best server. After a failure, tries the next one, as often as there are retries.
    pub(super) async fn execute(&self, order: Order) -> Outcome {
        let mut outcome = Outcome::default();
        let master = order.master || self.settings.ignores_slaves;
        let named = |why: String| format!("redis: {}: {}: {why}", self.name, order.request.name);
        let mut plan = match self.plan(master) {
            Ok(plan) => plan,
            Err(why) => {
                self.counters.add(Counter::CommandsFailed);
                outcome.faults.push(named(why));
                return outcome;
            }
        };
        let mut attempts = 0;
        while attempts <= order.retries {
            let Some(server) = plan.pop_front() else {
                if outcome.faults.is_empty() {
                    self.counters.add(Counter::CommandsFailed);
                    outcome.faults.push(named("no server is a master".to_owned()));
                }
                break;
            };
            // It fell sick in an earlier attempt.
            if server.sick_for(clock::monotonic()) > 0.0 {
                continue;
            }
            if attempts > 0 {
                self.counters.add(Counter::CommandsRetried);
            }
            match self.attempt(&server, &order, master, &mut outcome.notes).await {
                Attempt::Replied(reply) => {
                    self.counters.add(Counter::Commands);
                    if let Reply::Error(text) = &reply {
                        self.counters.add(Counter::CommandsError);
                        outcome.faults.push(named(format!("{}: error reply: {}", server.text, shown(text))));
                    }
                    outcome.reply = Some(reply);
                    break;
                }
                Attempt::Unfit => {}
                Attempt::Failed(why) => {
                    self.counters.add(Counter::CommandsFailed);
                    outcome.faults.push(named(format!("{}: {why}", server.text)));
                    plan.push_back(server);
                    attempts += 1;
                }
            }
        }
        outcome
    }

    async fn attempt(
        &self,
        server: &Server,
        order: &Order,
        master: bool,
        notes: &mut Vec<String>,
    ) -> Attempt {
        let lane = server.lane(order.lane, self.settings.max_connections);
        let permit = match lane.permits.try_acquire() {
            Ok(permit) => permit,
            Err(_) => {
                self.counters.add(Counter::Blocked);
                match timeout(order.timeout, lane.permits.acquire()).await {
                    Ok(Ok(permit)) => permit,
                    _ => {
                        return Attempt::Failed(format!(
                            "no connection became free {}",
                            within(order.timeout)
                        ));
                    }
                }
            }
        };
        let mut connection = match self.connection(server, &lane, notes).await {
            Ok(connection) => connection,
            Err(why) => return Attempt::Failed(why),
        };
        let called = timeout(order.timeout, self.call(&mut connection, server, order, master, notes)).await;
        let failure = match called {
            Ok(Ok(reply)) => {
                if !order.request.changes_state {
                    lane.keep(connection);
                }
                drop(permit);
                return reply.map_or(Attempt::Unfit, Attempt::Replied);
            }
            Ok(Err(why)) => why,
            Err(_) => format!("no reply came {}", within(order.timeout)),
        };
        self.counters.add(Counter::DroppedError);
        Attempt::Failed(failure)
    }

    /// Sends a command; `None` if it needs a master, and the server is none. If the server does not know its script,
    /// sends the script too.
    async fn call(
        &self,
        connection: &mut Connection,
        server: &Server,
        order: &Order,
        master: bool,
        notes: &mut Vec<String>,
    ) -> Result<Option<Reply>, String> {
        if master && server.must_ask(clock::monotonic()) {
            self.ask_role(connection, server, notes).await?;
        }
        if master && server.role(clock::monotonic()) == Role::Slave {
            return Ok(None);
        }
        let mut reply = connection.call(&order.request.bytes).await?;
        if let Some(with_script) = &order.request.with_script
            && reply.lacks_script()
        {
            self.counters.add(Counter::CommandsNoScript);
            reply = connection.call(with_script).await?;
        }
        // It was a master when it was asked.
        if server.asks_role && reply.is_of_slave() {
            server.set_role(Role::Slave);
            server.asked(clock::monotonic());
        }
        Ok(Some(reply))
    }

    /// Asks a server for its role. It stays unknown if the server refuses to tell it.
    async fn ask_role(
        &self,
        connection: &mut Connection,
        server: &Server,
        notes: &mut Vec<String>,
    ) -> Result<(), String> {
        let reply = connection.call(&encode(&["ROLE"])).await?;
        server.asked(clock::monotonic());
        match reply.element(0) {
            Some(Reply::Text(role)) if role == b"master" => server.set_role(Role::Master),
            Some(Reply::Text(role)) if role == b"slave" => server.set_role(Role::Slave),
            _ => {
                server.set_role(Role::Unknown);
                notes.push(format!("redis: {}: {} does not tell its role", self.name, server.text));
            }
        }
        Ok(())
    }

    /// Returns an idle connection or opens one. A failure makes the server sick.
    async fn connection(
        &self,
        server: &Server,
        lane: &Lane,
        notes: &mut Vec<String>,
    ) -> Result<Connection, String> {
        let settings = &self.settings;
        let now = clock::monotonic();
        if let Some(connection) = server.idle(lane, now, settings.connection_ttl, &self.counters) {
            return Ok(connection);
        }
        let failure = match timeout(settings.connection_timeout, self.open(server, notes)).await {
            Ok(Ok(connection)) => {
                self.counters.add(Counter::Connections);
                server.recovered();
                if settings.is_debugged {
                    notes.push(format!("redis: {}: connected to {}", self.name, server.text));
                }
                return Ok(connection);
            }
            Ok(Err(why)) => format!("cannot connect: {why}"),
            Err(_) => format!("cannot connect {}", within(settings.connection_timeout)),
        };
        self.counters.add(Counter::ConnectionsFailed);
        server.fell_sick(clock::monotonic(), settings.sickness_ttl);
        if settings.sickness_ttl > 0.0 {
            return Err(format!("{failure}; the server counts as sick for {} s", settings.sickness_ttl));
        }
        Err(failure)
    }

    /// Opens a connection: authenticates, chooses the protocol, and asks for the role.
    async fn open(&self, server: &Server, notes: &mut Vec<String>) -> Result<Connection, String> {
        let mut connection = Connection::open(&server.location, server.tls.as_ref()).await?;
        let Login { protocol, user, password } = &self.settings.login;
        let mut words = match protocol {
            Protocol::Default => Vec::new(),
            Protocol::Resp2 => vec!["HELLO", "2"],
            Protocol::Resp3 => vec!["HELLO", "3"],
        };
        if !password.is_empty() {
            words.push("AUTH");
            if !user.is_empty() {
                words.push(user);
            } else if *protocol != Protocol::Default {
                words.push("default");
            }
            words.push(password);
        }
        if let Some(command) = words.first() {
            let reply = connection.call(&encode(&words)).await?;
            let is_accepted = match &reply {
                Reply::Status(text) => text == b"OK" && *protocol == Protocol::Default,
                Reply::Array(_) => *protocol != Protocol::Default,
                _ => false,
            };
            if !is_accepted {
                let text = reply.text().unwrap_or_default();
                return Err(format!("the server refuses {command}: {}", shown(&text)));
            }
        }
        if server.asks_role {
            self.ask_role(&mut connection, server, notes).await?;
        }
        Ok(connection)
    }
}

fn within(time: Duration) -> String {
    format!("within {} ms", time.as_millis())
}

/// Returns the reason for which none of the servers can be used.
fn reasons(servers: &[Arc<Server>], now: f64) -> String {
    if servers.is_empty() {
        return "the database has no server; name it in redis.db() or .add_server()".to_owned();
    }
    let reason = |server: &Arc<Server>| match server.sick_for(now) {
        rest if rest > 0.0 => format!("{} is sick for {rest:.0} more s", server.text),
        _ => format!("{} is a slave", server.text),
    };
    let reasons: Vec<String> = servers.iter().take(MOST_NAMED).map(reason).collect();
    format!("no server can be used: {}", reasons.join(", "))
}
