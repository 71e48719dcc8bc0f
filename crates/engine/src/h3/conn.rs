//! The state that the streams of one connection share.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use lacquer_h2::rules::RapidReset;
use lacquer_h3::request::Limits;
use lacquer_h3::{Connection, Error, Fault, Note, Reason, settings};
use lacquer_params::Params;
use lacquer_quic::StreamId;
use lacquer_shm::{Tag, Vxid};
use lacquer_sources::clock;

use crate::account::Account;
use crate::services::Services;
use crate::session::Sess;

pub struct Conn {
    pub services: Rc<Services>,
    pub sess: Rc<Sess>,
    pub vxid: Vxid,
    pub quic: Rc<lacquer_quic::Connection>,
    /// The rules of the protocol, with the tables of header compression.
    pub protocol: RefCell<Connection>,
    resets: RefCell<RapidReset>,
    /// The bytes of streams that belong to no request.
    pub account: Cell<Account>,
    error: Cell<Option<Error>>,
    /// The streams whose requests have ended, until the session forgets them.
    ended: RefCell<Vec<StreamId>>,
    /// The streams whose responses were written, and that the client has not acknowledged.
    unacknowledged: RefCell<HashSet<StreamId>>,
}

impl Conn {
    pub fn new(
        services: Rc<Services>,
        sess: Rc<Sess>,
        quic: Rc<lacquer_quic::Connection>,
        params: &Params,
    ) -> Conn {
        let resets = RapidReset::new(
            params.h2_rapid_reset,
            u64::from(params.h2_rapid_reset_limit),
            params.h2_rapid_reset_period,
            sess.opened(),
        );
        Conn {
            vxid: sess.vxid(),
            services,
            sess,
            quic,
            protocol: RefCell::new(Connection::new(settings::Settings {
                connect_protocol: !params.upgrade_protocols.is_empty(),
                ..settings::Settings::of_server(params.http_req_size)
            })),
            resets: RefCell::new(resets),
            account: Cell::default(),
            error: Cell::new(None),
            ended: RefCell::default(),
            unacknowledged: RefCell::default(),
        }
    }

    pub fn log(&self, tag: Tag, text: std::fmt::Arguments<'_>) {
        self.services.log().write_fmt(tag, self.vxid, text);
    }

    /// Logs a record of the protocol's rules with the session.
    pub fn note(&self, note: &Note) {
        let tag = match note.tag {
            lacquer_h3::Tag::Debug => Tag::Debug,
            lacquer_h3::Tag::SessError => Tag::SessError,
            _ => Tag::BogoHeader,
        };
        self.services.log().write(tag, self.vxid, note.text.as_bytes());
    }

    /// Logs the reason for a fault, and returns its error, which ends the stream or the connection.
    pub fn log_fault(&self, fault: &Fault) -> Error {
        if let Some(note) = &fault.note {
            self.note(note);
        }
        fault.error
    }

    /// Returns the limits of a request's fields.
    pub fn limits(&self) -> Limits {
        let params = self.services.params();
        Limits::new(
            params.http_req_size as usize,
            params.http_req_hdr_len as usize,
            params.h2_max_header_list_size as usize,
        )
        .with_extended_connect(!params.upgrade_protocols.is_empty())
    }

    pub fn error(&self) -> Option<Error> {
        self.error.get()
    }

    /// Ends the connection with this error, unless it is already ending with another. The session notices.
    pub fn fail(&self, error: Error) {
        if self.error.get().is_none() {
            self.error.set(Some(error));
        }
        self.quic.wake();
    }

    /// Charges the reset of a stream that the client had opened at `opened`, to the connection and to its address. Fails
    /// if one of them has reset too many.
    pub fn charge_reset(&self, opened: f64) -> Result<(), Error> {
        match self.resets.borrow_mut().reset(clock::real(), opened) {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(_) => {
                self.log(Tag::SessError, format_args!("H3: Hit RST limit. Closing session."));
                return Err(Error::Connection(Reason::RapidReset));
            }
        }
        if self.sess.charge_reset(self.services.addresses(), &self.services.params()) {
            return Ok(());
        }
        self.log(Tag::SessError, format_args!("H3: Hit h2_rapid_reset_address_limit. Closing session."));
        self.services.counters().h2_reset_limited.add(1);
        Err(Error::Connection(Reason::RapidReset))
    }

    /// Counts bytes of a stream that belongs to no request.
    pub fn count_overhead(&self, received: usize, sent: usize) {
        let mut account = self.account.get();
        account.req_header += received as u64;
        account.resp_header += sent as u64;
        self.account.set(account);
    }

    // Streams.

    /// Records that the request of a stream has ended.
    pub(super) fn leave(&self, id: StreamId) {
        self.ended.borrow_mut().push(id);
        self.quic.wake();
    }

    /// Returns the streams whose requests have ended since the last call.
    pub fn take_ended(&self) -> Vec<StreamId> {
        self.ended.take()
    }

    /// Records that a response was written completely.
    pub(super) fn response_written(&self, id: StreamId) {
        self.unacknowledged.borrow_mut().insert(id);
    }

    /// Records that the client has a whole response, or does not want the rest.
    pub fn response_acknowledged(&self, id: StreamId) {
        self.unacknowledged.borrow_mut().remove(&id);
    }

    /// Returns whether responses are on their way, which would be lost if the connection closed.
    pub fn has_unacknowledged(&self) -> bool {
        !self.unacknowledged.borrow().is_empty()
    }

    /// Logs the session's account, and counts the bytes that belong to no request.
    pub fn finish(&self) {
        self.account.get().close(self.services.log(), self.vxid, self.services.counters());
    }
}
