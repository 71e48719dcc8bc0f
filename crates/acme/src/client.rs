//! The client's thread: it owns the account and the schedule, and makes one attempt at a time.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use instant_acme::{Account, CertificateIdentifier};
use lacquer_http::date;
use lacquer_sources::clock;
use rustls::pki_types::Der;

use crate::account;
use crate::api::block_on;
use crate::fault::Fault;
use crate::folder::{self, Folder};
use crate::link::{self, Event, Inbox, Link};
use crate::managed::Managed;
use crate::name::Names;
use crate::on_demand::{self, Admission, Queue};
use crate::order::{self, Request};
use crate::responses::Responses;
use crate::rights::Rights;
use crate::settings::Settings;
use crate::stored::Stored;
use crate::transport::Waits;

/// The longest sleep. A clock that was set is noticed after this time.
const LONGEST_SLEEP: Duration = Duration::from_mins(10);
/// The time between two questions for the window of a renewal if the server does not say it, and its bounds.
const ASK_AGAIN: Duration = Duration::from_hours(6);
const SHORTEST_ASK: Duration = Duration::from_mins(1);
const LONGEST_ASK: Duration = Duration::from_hours(24);

/// The state of a certificate, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub names: Names,
    /// The last moment at which the certificate is valid, in seconds since the epoch; `None` if there is none.
    pub not_after: Option<i64>,
    pub state: State,
    /// Why the last attempt has failed.
    pub fault: Option<String>,
}

/// The state of the work for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// An attempt is in progress.
    Busy,
    /// The next attempt is made at this time, in seconds since the epoch.
    Waits(i64),
}

/// The states of all certificates.
type Board = Arc<Mutex<Vec<Status>>>;

/// A running client. Its thread ends after it is dropped.
#[derive(Debug)]
pub struct Client {
    wishes: Sender<Wish>,
    /// The names on demand that the thread has not seen.
    wanted: Arc<Queue>,
    board: Board,
}

/// A message for the client's thread.
enum Wish {
    /// Renew this certificate at once.
    Renew(Names),
    /// Look at the queue of names on demand.
    Look,
}

/// The parts of the client's thread.
struct Worker {
    settings: Settings,
    folder: Folder,
    rights: Rights,
    link: Link,
    waits: Waits,
    account: Option<Account>,
    all: Vec<Managed>,
    wanted: Arc<Queue>,
    admission: Admission,
    board: Board,
}

impl Client {
    /// Starts the thread. The folder must exist. `on_demand` are the names of stored certificates that no option names.
    /// Returns the end of the link from which the manager takes events.
    pub fn start(
        settings: Settings,
        folder: Folder,
        all: Vec<Names>,
        on_demand: Vec<Names>,
        rights: Rights,
    ) -> io::Result<(Client, Inbox)> {
        let (link, inbox) = link::pair()?;
        let (wishes, inbox_of_thread) = channel();
        let (board, wanted) = (Board::default(), Arc::<Queue>::default());
        let client = Client { wishes, wanted: wanted.clone(), board: board.clone() };
        std::thread::Builder::new().name("acme".to_owned()).spawn(move || {
            let account = None;
            let mut worker = Worker {
                settings,
                folder,
                rights,
                link,
                waits: Waits::default(),
                account,
                all: Vec::new(),
                wanted,
                admission: Admission::default(),
                board,
            };
            worker.load(all, Managed::new);
            worker.load(on_demand, Managed::on_demand);
            worker.run(&inbox_of_thread);
        })?;
        Ok((client, inbox))
    }

    /// Returns the states of all certificates.
    pub fn statuses(&self) -> Vec<Status> {
        self.board.lock().map(|board| board.clone()).unwrap_or_default()
    }

    /// Renews the certificates with this first name, or all. Returns how many there are.
    pub fn renew(&self, name: Option<&str>) -> usize {
        let statuses = self.statuses();
        let wanted = |status: &&Status| name.is_none_or(|name| status.names.first() == name);
        let chosen = statuses.into_iter().filter(|status| wanted(&status));
        chosen.filter_map(|status| self.wishes.send(Wish::Renew(status.names)).ok()).count()
    }

    /// Obtains a certificate for a name that a client asks for, unless there is one or too many names wait.
    pub fn want(&self, names: Names) {
        if self.wanted.add(names) {
            // The thread may have ended with the daemon.
            let _ = self.wishes.send(Wish::Look);
        }
    }
}

fn day(seconds: f64) -> String {
    String::from_utf8_lossy(&date::format(seconds)).into_owned()
}

impl Worker {
    /// Reads the stored certificates. Those that cannot be used are obtained again.
    fn load(&mut self, all: Vec<Names>, make: fn(Names, Option<&Stored>) -> Managed) {
        for names in all {
            let path = self.folder.certificate(&names);
            let stored = self.rights.run(|| Stored::read(&path, &names)).unwrap_or_else(|why| {
                self.link.report(format!("{}: {why}; a new certificate is obtained", path.display()), true);
                None
            });
            self.all.push(make(names, stored.as_ref()));
        }
    }

    /// Adds the names on demand that clients have asked for, and forgets those that cannot be verified.
    fn follow_demand(&mut self) {
        self.all.retain(|managed| !on_demand::is_hopeless(managed));
        for names in self.wanted.take() {
            if self.all.iter().any(|managed| *managed.names() == names) {
                continue;
            }
            match self.admission.accept(&self.all, Instant::now()) {
                Ok(()) => self.all.push(Managed::on_demand(names, None)),
                Err(why) if why.is_empty() => {}
                Err(why) => self.link.report(format!("{names} is not obtained: {why}"), true),
            }
        }
    }

    fn run(&mut self, wishes: &Receiver<Wish>) {
        loop {
            self.follow_demand();
            self.publish(None);
            let now = Instant::now();
            let real = clock::real();
            let due = self.all.iter().map(|managed| managed.due_in(real, now)).enumerate();
            let next = due.min_by_key(|(_, due)| *due);
            match next {
                Some((at, Duration::ZERO)) => {
                    self.attempt(at);
                    continue;
                }
                _ if self.ask_for_windows() => continue,
                _ => {}
            }
            let sleep = next.map_or(LONGEST_SLEEP, |(_, due)| due.min(LONGEST_SLEEP));
            match wishes.recv_timeout(sleep) {
                Ok(Wish::Renew(names)) => {
                    let known = self.all.iter_mut().find(|managed| *managed.names() == names);
                    known.into_iter().for_each(Managed::hurry);
                }
                Ok(Wish::Look) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Publishes the states for the operator.
    fn publish(&self, busy: Option<usize>) {
        let (now, real) = (Instant::now(), clock::real());
        let status = |(at, managed): (usize, &Managed)| Status {
            names: managed.names().clone(),
            not_after: managed.leaf().map(lacquer_tls::Leaf::not_after),
            state: match busy {
                Some(busy) if busy == at => State::Busy,
                _ => State::Waits((real + managed.due_in(real, now).as_secs_f64()) as i64),
            },
            fault: managed.fault().map(|fault| fault.text().to_owned()),
        };
        if let Ok(mut board) = self.board.lock() {
            *board = self.all.iter().enumerate().map(status).collect();
        }
    }

    /// Tries to obtain a certificate, and reports the result.
    fn attempt(&mut self, at: usize) {
        self.publish(Some(at));
        self.waits.begin();
        // A fault of a library must not end the renewals of all certificates.
        let done = catch_unwind(AssertUnwindSafe(|| self.obtain(at)));
        let done = done.unwrap_or_else(|_| Err(Fault::new("a fault in this program; stderr has its place")));
        let wait = self.waits.take();
        let now = Instant::now();
        let managed = &mut self.all[at];
        match done {
            Ok(stored) => {
                let text = format!(
                    "{}: certificate obtained, valid until {}",
                    managed.names(),
                    day(stored.leaf().not_after() as f64)
                );
                managed.succeed(&stored, now);
                self.link.report(text, false);
            }
            Err(fault) => {
                // The file is read again, which the operator may have changed.
                self.account = None;
                let pause = managed.fail(fault.clone().with_wait(wait), now);
                let next = day(clock::real() + pause.as_secs_f64());
                let text = format!("{}: {}; next attempt {next}", managed.names(), fault.text());
                self.link.report(text, true);
            }
        }
    }

    /// Obtains a certificate, writes it to the folder and lets the manager load it. If the server has forgotten the
    /// account, a new one is made, once.
    fn obtain(&mut self, at: usize) -> Result<Stored, Fault> {
        match self.obtain_once(at) {
            Err(fault) if fault.lacks_account() => {
                self.account = None;
                let why = "contains an account that the server does not have";
                account::set_aside((&self.folder, &self.rights), &self.link, &why)?;
                self.obtain_once(at)
            }
            done => done,
        }
    }

    fn obtain_once(&mut self, at: usize) -> Result<Stored, Fault> {
        self.open_account()?;
        let managed = &self.all[at];
        let Some(account) = &self.account else { return Err(Fault::new("there is no account")) };
        let identity = managed.renewal_id();
        let request = Request {
            names: managed.names(),
            methods: self.settings.methods,
            failures: managed.failures(),
            replaces: identity.as_ref().map(identifier),
        };
        let mut responses = Responses::new(&self.link, self.settings.hook.as_deref(), &self.rights);
        let pem = order::obtain(account, &request, &mut responses)?;
        drop(responses);
        let path = self.folder.certificate(managed.names());
        let stored = Stored::parse(&path, pem.as_bytes(), managed.names())
            .map_err(|why| Fault::new(why).during("the server's certificate cannot be used"))?;
        if (stored.leaf().not_after() as f64) <= clock::real() {
            let end = day(stored.leaf().not_after() as f64);
            return Err(Fault::new(format_args!(
                "the server's certificate ends {end}, which has passed; check the clock of this machine"
            )));
        }
        let written = self.rights.run(|| folder::write(&path, pem.as_bytes()));
        written.map_err(|error| Fault::new(format_args!("cannot write {}: {error}", path.display())))?;
        self.load_into_manager(managed.names(), path)?;
        Ok(stored)
    }

    fn load_into_manager(&self, names: &Names, path: PathBuf) -> Result<(), Fault> {
        let names = names.clone();
        let asked = self.link.ask(|reply| Event::Certificate { names, path, reply });
        asked.map_err(|fault| fault.during("the new certificate cannot be loaded"))
    }

    fn open_account(&mut self) -> Result<(), Fault> {
        if self.account.is_none() {
            self.account =
                Some(account::open(&self.settings, (&self.folder, &self.rights), &self.link, &self.waits)?);
        }
        Ok(())
    }

    /// Asks the server when certificates are to be renewed, where that is due. Returns whether it was asked. A server
    /// that fails is asked again later: the certificates have times of their own.
    fn ask_for_windows(&mut self) -> bool {
        let now = Instant::now();
        let Some(at) = self.all.iter().position(|managed| managed.asks_for_window(now)) else { return false };
        self.waits.begin();
        let answer = self.window(at);
        let again = answer.map_or(ASK_AGAIN, |(_, again)| again.clamp(SHORTEST_ASK, LONGEST_ASK));
        let managed = &mut self.all[at];
        if let Some(renewal) = managed.suggest(answer.map(|(window, _)| window), again, now) {
            let text = format!("{}: the server asks for a renewal {}", managed.names(), day(renewal));
            self.link.report(text, false);
        }
        true
    }

    fn window(&mut self, at: usize) -> Option<((f64, f64), Duration)> {
        self.open_account().ok()?;
        let identity = self.all[at].renewal_id()?;
        let answer = block_on(self.account.as_ref()?.renewal_info(&identifier(&identity)));
        let (info, again) = answer.ok()?;
        let window = info.suggested_window;
        let (start, end) = (window.start.unix_timestamp() as f64, window.end.unix_timestamp() as f64);
        (start <= end).then_some(((start, end), again))
    }
}

fn identifier((authority, serial): &(Vec<u8>, Vec<u8>)) -> CertificateIdentifier<'static> {
    CertificateIdentifier::new(Der::from_slice(authority), Der::from_slice(serial)).into_owned()
}
