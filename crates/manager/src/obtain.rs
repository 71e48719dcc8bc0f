//! Carries out the requests of the ACME client, and the commands `acme.*`.

use std::path::PathBuf;

use lacquer_acme::{Challenge, Event, Names};
use lacquer_cli::link::Request;
use lacquer_cli::{json, status};
use lacquer_tls::Change;

use crate::complain::Level;
use crate::manager::{Manager, Reply};
use crate::shm::now;
use crate::tls::{self, Responses};

/// The maximum number of names that a worker reports at a time.
const MAX_WANTED: usize = 64;

impl Manager {
    /// Starts the client when a worker runs for the first time. A daemon that cannot do so serves the certificates that
    /// it has.
    pub(crate) fn start_acme(&mut self) {
        let Some(plan) = self.tls.plan.take() else { return };
        match plan.start(&self.jail) {
            Ok(acme) => self.tls.acme = Some(acme),
            Err(error) => self.complain.report(Level::Error, &format!("ACME: cannot start: {error}")),
        }
    }

    /// Handles what the client asks for.
    pub(crate) fn serve_acme(&mut self) {
        let events = self.tls.acme.as_mut().map(tls::Acme::take_events);
        for event in events.into_iter().flatten() {
            match event {
                Event::Report { text, is_error } => {
                    let level = if is_error { Level::Error } else { Level::Info };
                    self.complain.report(level, &format!("ACME: {text}"));
                }
                Event::Challenges { all, reply } => drop(reply.send(self.respond_to(all))),
                Event::Certificate { names, path, reply } => {
                    drop(reply.send(self.load_obtained(&names, path)));
                }
            }
        }
    }

    /// Asks the worker for the names on demand that clients have asked for, and obtains their certificates. The worker
    /// faces the network, so each of its names is compared with the list again.
    pub(crate) fn serve_wanted_names(&mut self) {
        let can_obtain = self.tls.acme.is_some() && self.tls.catalogue.on_demand().is_some();
        if !can_obtain || !self.running() {
            return;
        }
        self.follow_list();
        let Ok(reply) = self.request_success(Request::WantedNames) else { return };
        let (Some(acme), Some(on_demand)) = (&self.tls.acme, self.tls.catalogue.on_demand()) else { return };
        let text = reply.text.lossy();
        text.lines()
            .take(MAX_WANTED)
            .filter_map(|name| on_demand.names(name))
            .for_each(|names| acme.want(names));
    }

    /// Reads the list of names on demand again if its file has changed. A malformed list has no effect.
    fn follow_list(&mut self) {
        let Some(read) = self.tls.catalogue.look_at_on_demand(&self.jail) else { return };
        let applied = read.and_then(|list| {
            let change = Change { on_demand: Some(Box::new(list.list().clone())), ..Change::default() };
            self.send_certificates(&change).map_err(|reply| reply.text.lossy().into_owned())?;
            self.tls.catalogue.set_on_demand(Some(list));
            Ok(())
        });
        match applied {
            Ok(()) => self.complain.report(Level::Info, "ACME: acme_on_demand was read again"),
            Err(why) => {
                let text = format!("ACME: acme_on_demand: {why}; the old list stays in use");
                self.complain.report(Level::Error, &text);
            }
        }
    }

    /// Makes the worker respond to these challenges, and to no others.
    fn respond_to(&mut self, challenges: Vec<Challenge>) -> Result<(), String> {
        let responses = Responses::of(challenges)?;
        if !responses.is_empty() && !self.running() {
            return Err("no worker runs that could respond to them".to_owned());
        }
        if let Some(acme) = &mut self.tls.acme {
            acme.set_responses(responses);
        }
        self.send_challenges().map_err(|reply| reply.text.lossy().into_owned())
    }

    /// Sends the responses to challenges to the worker, if one runs.
    pub(crate) fn send_challenges(&mut self) -> Result<(), Reply> {
        let Some(acme) = self.tls.acme.as_ref().filter(|_| self.running()) else { return Ok(()) };
        let Responses { pages, certificates } = acme.responses().clone();
        let certificates = certificates.encode();
        self.request_success(Request::Challenges { pages, certificates }).map(drop)
    }

    /// Puts a certificate that was obtained into effect. Staged changes of the operator stay staged.
    fn load_obtained(&mut self, names: &Names, path: PathBuf) -> Result<(), String> {
        let wanted = tls::obtained(names, path);
        let loaded = tls::load(&wanted, &self.jail).map_err(|refusal| refusal.text)?;
        let (change, replacement) = self.tls.catalogue.replacement(wanted, loaded);
        self.send_certificates(&change).map_err(|reply| reply.text.lossy().into_owned())?;
        self.tls.catalogue.replace(replacement);
        Ok(())
    }

    /// `acme.list`
    pub(crate) fn acme_list(&self, words: &[String], json: bool) -> Reply {
        match &self.tls.acme {
            None => Reply::no(
                status::CANT,
                "No certificates are obtained: no listener has acme=, acme_on_demand is empty, or no worker has run yet",
            ),
            Some(acme) if json => Reply::ok(json::reply(2, words, now(), &acme.list_json())),
            Some(acme) => Reply::ok(acme.list()),
        }
    }

    /// `acme.renew`
    pub(crate) fn acme_renew(&self, name: Option<&str>) -> Reply {
        match self.tls.acme.as_ref().map(|acme| acme.renew(name)) {
            None => Reply::no(
                status::CANT,
                "No certificates are obtained: no listener has acme=, acme_on_demand is empty, or no worker has run yet",
            ),
            Some(0) => Reply::no(status::PARAM, "No certificate has this name first; see acme.list"),
            Some(_) => Reply::ok(""),
        }
    }
}
