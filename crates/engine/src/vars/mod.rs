//! The implementation of VCL's variables and headers that requests and fetches share.
//!
//! The two hosts (`client::host`, `fetch::host`) select the message, the object and the log. This module reads and
//! changes them, with the limits and texts of Varnish.

pub mod headers;
pub mod object;
pub mod params;
pub mod session;
pub mod storage;
pub mod task_methods;
pub mod tls;

use lacquer_http::{Message, Slot, Text, Workspace};
use lacquer_shm::Tag;
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{HostResult, RegexLimits};

use crate::task::Task;
use crate::vxids::vxid_of;

/// The type number of a BLOB that contains a hash.
pub const HASH_BLOB: u32 = 0x00d1_6357;

/// The longest duration that VCL can represent. It means "never".
const DURATION_MAX: f64 = 999_999_999_999.999;

/// Converts a timeout to a VCL duration.
pub fn shown(timeout: f64) -> f64 {
    if timeout.is_infinite() { DURATION_MAX } else { timeout }
}

/// Returns a field of a start line.
pub fn start_text<'w>(message: &Message, ws: &'w Workspace, slot: Slot) -> Option<&'w [u8]> {
    ws.get_opt(message.text(slot))
}

/// Returns a filter list with a leading space. Returns an empty text if there are no filters, or no workspace.
pub fn listed<'w>(ws: &'w mut Workspace, list: &[u8]) -> &'w [u8] {
    let list = list.trim_ascii_start();
    if list.is_empty() {
        return b"";
    }
    ws.copy_parts(&[b" ", list]).map_or(&[], |text| ws.get(text))
}

/// Sets a text. If the new text did not fit into the workspace, the old text stays; the workspace records the
/// overflow.
pub fn assign(target: &mut Text, value: Text) {
    if value.is_some() {
        *target = value;
    }
}

/// Copies a string from VCL into the workspace. An undefined string becomes empty. Returns `NONE` if there is no
/// room.
pub fn keep(ws: &mut Workspace, value: Option<&[u8]>) -> Text {
    ws.copy(value.unwrap_or_default()).unwrap_or_default()
}

/// Returns the error for a variable that this host does not have. The compiler accepts no program that gets here.
pub fn misplaced<T>(var: Var) -> HostResult<T> {
    Err(format!("{} cannot be set here", var.name()))
}

/// The log tags by number.
const TAGS: [Option<Tag>; 256] = {
    let mut table = [None; 256];
    let mut n = 0;
    while n < Tag::ALL.len() {
        table[Tag::ALL[n] as usize] = Some(Tag::ALL[n]);
        n += 1;
    }
    table
};

/// VCL calls that both hosts forward to their task.
impl Task {
    pub fn put(&mut self, tag: u8, text: &[u8]) {
        if let Some(tag) = TAGS[usize::from(tag)] {
            self.log_mut().put(tag, text);
        }
    }

    /// Writes a log record of another transaction.
    pub fn put_as(&self, vxid: u64, tag: u8, text: &[u8]) {
        if let Some(tag) = TAGS[usize::from(tag)] {
            self.services().log().write(tag, vxid_of(vxid), text);
        }
    }

    pub fn fail(&mut self, text: &str) {
        self.log_mut().put(Tag::VCL_Error, text.as_bytes());
        self.mark_failed();
    }

    pub fn alloc(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let place = self.ws_mut().alloc(bytes).ok()?;
        Some(self.ws_mut().get_mut(place))
    }

    pub fn copy(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        let text = self.ws_mut().copy(bytes).ok()?;
        Some(self.ws().get(text))
    }

    pub fn regex_limits(&self) -> RegexLimits {
        RegexLimits { matches: self.params().pcre2_match_limit, depth: self.params().pcre2_depth_limit }
    }

    /// Returns a PROXY v2 extension by its type.
    pub fn proxy_tlv(&self, kind: u8) -> Option<Vec<u8>> {
        self.sess().proxy_tlv(kind).map(<[u8]>::to_vec)
    }
}
