//! A message whose changes are logged: the tags for each kind of message, and the operations that change a message.

use lacquer_http::{
    HeaderName, Message, Overflow, Slot, Text, Workspace, conditional, fixed, fixed_text_table,
    header_table as h,
};
use lacquer_shm::{Tag, TxLog};

/// The log tags for one kind of message.
#[derive(Clone, Copy)]
pub struct Tags {
    pub method: Tag,
    pub url: Tag,
    pub protocol: Tag,
    pub status: Tag,
    pub reason: Tag,
    pub header: Tag,
    pub unset: Tag,
}

impl Tags {
    fn of(self, slot: Slot) -> Tag {
        match slot {
            Slot::Method => self.method,
            Slot::Url => self.url,
            Slot::Proto => self.protocol,
            Slot::Status => self.status,
            Slot::Reason => self.reason,
        }
    }
}

macro_rules! tags {
    ($name:ident $m:ident $u:ident $p:ident $s:ident $r:ident $h:ident $un:ident) => {
        pub const $name: Tags = Tags {
            method: Tag::$m,
            url: Tag::$u,
            protocol: Tag::$p,
            status: Tag::$s,
            reason: Tag::$r,
            header: Tag::$h,
            unset: Tag::$un,
        };
    };
}

tags!(REQ ReqMethod ReqURL ReqProtocol ReqStatus ReqReason ReqHeader ReqUnset);
tags!(RESP RespMethod RespURL RespProtocol RespStatus RespReason RespHeader RespUnset);
tags!(BEREQ BereqMethod BereqURL BereqProtocol BereqStatus BereqReason BereqHeader BereqUnset);
tags!(BERESP BerespMethod BerespURL BerespProtocol BerespStatus BerespReason BerespHeader BerespUnset);

/// A message with the workspace and the log that changes to it need.
pub struct Logged<'t> {
    pub message: &'t mut Message,
    pub ws: &'t mut Workspace,
    pub log: &'t mut TxLog,
    pub tags: Tags,
}

/// Marks the workspace as overflowed, and logs the overflow.
pub fn out_of_workspace(ws: &mut Workspace, log: &mut TxLog) {
    let kind = if log.vxid().is_client() { "req" } else { "bo" };
    log.put_fmt(Tag::Error, format_args!("out of workspace ({kind})"));
    ws.set_overflowed();
}

impl Logged<'_> {
    /// Logs the whole message.
    pub fn log_all(&mut self) {
        self.log_first_line();
        let (m, ws, t) = (&*self.message, &*self.ws, self.tags);
        for field in m.fields() {
            self.log.put(t.header, field.line(ws));
        }
    }

    pub fn log_first_line(&mut self) {
        let (m, ws, t) = (&*self.message, &*self.ws, self.tags);
        if m.text(Slot::Method).is_some() {
            self.log.put(t.method, m.method(ws));
            self.log.put(t.url, m.url(ws));
            self.log.put(t.protocol, m.proto(ws));
        } else {
            self.log.put(t.protocol, m.proto(ws));
            self.log.put(t.status, m.status_text(ws));
            self.log.put(t.reason, m.reason(ws));
        }
    }

    pub fn unset(&mut self, name: HeaderName<'_>) {
        let (log, tag) = (&mut *self.log, self.tags.unset);
        self.message.unset(self.ws, name, |line| log.put(tag, line));
    }

    /// Adds a header line. Returns false if there is no room.
    pub fn add(&mut self, name: HeaderName<'_>, value: &[u8]) -> bool {
        match self.message.append(self.ws, name, value) {
            Ok(line) => {
                self.log.put(self.tags.header, self.ws.get(line));
                true
            }
            Err(_) => {
                self.lost(&[name.as_bytes(), b":"]);
                false
            }
        }
    }

    /// Appends a value to a list header. The log shows the old line as unset and the new line as set.
    #[inline]
    pub fn append_value(&mut self, name: HeaderName<'_>, value: &[u8]) {
        let (log, tag) = (&mut *self.log, self.tags.unset);
        match self.message.append_value(self.ws, name, value, |old| log.put(tag, old)) {
            Ok(line) => self.log.put(self.tags.header, self.ws.get(line)),
            Err(_) => self.lost(&[name.as_bytes(), b":"]),
        }
    }

    /// Adds a header line with a fixed text.
    pub fn add_line(&mut self, name: HeaderName<'_>, line: Text) {
        match self.message.append_named_line(self.ws, name, line) {
            Ok(line) => self.log.put(self.tags.header, self.ws.get(line)),
            Err(_) => self.lost(&[name.as_bytes(), b":"]),
        }
    }

    /// Makes this fixed line the only one of its name. Changes nothing if it already is.
    pub fn force(&mut self, name: HeaderName<'_>, line: Text) {
        let value = self.ws.get(line.tail(name.as_bytes().len() + 2));
        if self.message.value_is(self.ws, name, value) && self.message.count(self.ws, name) == 1 {
            return;
        }
        self.unset(name);
        self.add_line(name, line);
    }

    /// Sets a field of the start line to a fixed text. Logs it if the field changes.
    pub fn force_slot(&mut self, slot: Slot, text: Text) {
        let changes = self.ws.get(self.message.text(slot)) != self.ws.get(text);
        self.message.put(self.ws, slot, text);
        if changes {
            self.log.put(self.tags.of(slot), self.ws.get(text));
        }
    }

    /// Changes the headers for a body whose encoding changes.
    pub fn change_encoding(&mut self) {
        self.unset(h::CONTENT_ENCODING);
        self.unset(h::CONTENT_LENGTH);
        self.weaken_etag();
    }

    /// Weakens the ETag, because the body is changed.
    pub fn weaken_etag(&mut self) {
        let (log, tag) = (&mut *self.log, self.tags.unset);
        let line = conditional::weaken_etag(self.message, self.ws, |line| log.put(tag, line));
        self.log_changed(line);
    }

    /// Adds `Accept-Encoding` to `Vary`, because other clients receive the body in another encoding.
    pub fn vary_on_encoding(&mut self) {
        let (log, tag) = (&mut *self.log, self.tags.unset);
        let line = conditional::vary_on_encoding(self.message, self.ws, |line| log.put(tag, line));
        self.log_changed(line);
    }

    /// Logs the new line, if one was needed and there was room for it.
    fn log_changed(&mut self, line: Result<Option<Text>, Overflow>) {
        if let Ok(Some(line)) = line {
            self.log.put(self.tags.header, self.ws.get(line));
        }
    }

    /// Logs a text that did not fit into the message, and marks the workspace as overflowed.
    pub fn lost(&mut self, what: &[&[u8]]) {
        out_of_workspace(self.ws, self.log);
        self.log.put(Tag::LostHeader, &what.concat());
    }

    pub fn put(&mut self, slot: Slot, bytes: &[u8]) -> bool {
        if self.message.put_copy(self.ws, slot, bytes).is_err() {
            self.lost(&[bytes]);
            return false;
        }
        self.log.put(self.tags.of(slot), bytes);
        true
    }

    /// Turns the message into a response with this status. Without a reason, it gets the standard one.
    pub fn respond(&mut self, status: u16, reason: Option<&[u8]>) {
        let made = match reason {
            None => self.message.set_response(self.ws, status),
            Some(reason) => self
                .message
                .set_response(self.ws, status)
                .and_then(|()| self.message.put_copy(self.ws, Slot::Reason, reason).map(|_| ())),
        };
        self.responds(made.is_ok());
    }

    /// Like [`Logged::respond`], with a reason that is in the workspace or fixed. `NONE` stands for the standard
    /// reason.
    pub fn respond_with(&mut self, status: u16, reason: Text) {
        let reason = if reason.is_none() { fixed_text_table::reason_text(status) } else { reason };
        self.message.put(self.ws, Slot::Proto, fixed::HTTP_11);
        let made = self.message.set_status_reason(self.ws, status, reason);
        self.responds(made.is_ok());
    }

    fn responds(&mut self, complete: bool) {
        if !complete {
            self.ws.set_overflowed();
        }
        self.log_first_line();
    }
}

/// Header names that the crate `lacquer-http` does not define.
pub mod names {
    use lacquer_http::HeaderName;

    /// A request may be a repetition (RFC 8470 section 5.1).
    pub const EARLY_DATA: HeaderName<'static> = HeaderName::new(b"Early-Data");
    /// The tags of an object, for purges.
    pub const XKEY: HeaderName<'static> = HeaderName::new(b"xkey");
    pub const X_HASH_TWO: HeaderName<'static> = HeaderName::new(b"X-HashTwo");
    pub const X_VARNISH: HeaderName<'static> = HeaderName::new(b"X-Varnish");
}
