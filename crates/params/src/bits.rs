//! Bit-set parameters: small types with named bits, written as `none,+a,+b`. In the log mask, a set bit
//! hides a tag, and the text is `all,-A,-B`.

use serde::{Deserialize, Serialize};

use crate::tokenize::{Rules, split};

/// Dynamic access to a bit set.
pub trait BitSet {
    /// Returns the names by bit number. A bit with an empty name cannot be set.
    fn names(&self) -> &'static [&'static str];
    /// Returns one line about each bit, or an empty slice.
    fn prose(&self) -> &'static [&'static str];
    /// Returns the noun for a bit in error texts.
    fn noun(&self) -> &'static str;
    /// Returns `+` if a set bit enables something, `-` if it disables something.
    fn sign(&self) -> char;
    /// Reads one bit.
    fn get(&self, bit: usize) -> bool;
    /// Writes one bit.
    fn put(&mut self, bit: usize, on: bool);
}

/// Formats a bit set for [`assign`].
pub fn show(bits: &dyn BitSet) -> String {
    let sign = bits.sign();
    let named = || bits.names().iter().enumerate().filter(|(_, name)| !name.is_empty());
    let (everything, nothing) = if sign == '+' { ("all", "none") } else { ("none", "all") };
    if named().all(|(bit, _)| bits.get(bit)) {
        return everything.to_owned();
    }
    let mut text = nothing.to_owned();
    for (bit, name) in named().filter(|(bit, _)| bits.get(*bit)) {
        debug_assert!(bits.get(bit));
        text.push(',');
        text.push(sign);
        text.push_str(name);
    }
    text
}

/// Applies a list such as `none,+syncvsl,-lurker`.
pub fn assign(bits: &mut dyn BitSet, text: &str) -> Result<(), String> {
    let sign = bits.sign();
    let names = bits.names();
    for item in split(text, Rules::LIST).map_err(|fault| format!("Cannot parse: {fault}\n"))? {
        if item == "all" || item == "none" {
            let on = (item == "all") == (sign == '+');
            (0..names.len()).for_each(|bit| bits.put(bit, on));
            continue;
        }
        let Some(name) = item.strip_prefix(['+', '-']) else {
            return Err(format!("Missing '+' or '-' ({item})\n"));
        };
        let bit = names
            .iter()
            .position(|known| !known.is_empty() && known.eq_ignore_ascii_case(name))
            .ok_or_else(|| format!("Unknown {} ({item})\n", bits.noun()))?;
        bits.put(bit, item.starts_with(sign));
    }
    Ok(())
}

macro_rules! bit_set {
    ($(#[$meta:meta])* $type:ident, $noun:literal, [$($bit:ident $name:literal $prose:literal)*]) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $type(pub u32);

        bit_set!(@consts $type 0u32; $($bit $prose)*);

        impl $type {
            /// Returns whether the bit (one of the constants) is set.
            #[inline]
            pub fn has(self, bit: $type) -> bool {
                self.0 & bit.0 != 0
            }
        }

        impl BitSet for $type {
            fn names(&self) -> &'static [&'static str] {
                &[$($name),*]
            }
            fn prose(&self) -> &'static [&'static str] {
                &[$($prose),*]
            }
            fn noun(&self) -> &'static str {
                $noun
            }
            fn sign(&self) -> char {
                '+'
            }
            fn get(&self, bit: usize) -> bool {
                self.0 & (1 << bit) != 0
            }
            fn put(&mut self, bit: usize, on: bool) {
                if on { self.0 |= 1 << bit } else { self.0 &= !(1 << bit) }
            }
        }
    };
    (@consts $type:ident $at:expr; $bit:ident $prose:literal $($rest:tt)*) => {
        impl $type {
            #[doc = $prose]
            pub const $bit: $type = $type(1 << ($at));
        }
        bit_set!(@consts $type $at + 1; $($rest)*);
    };
    (@consts $type:ident $at:expr;) => {};
}

bit_set! {
    /// The `debug` parameter.
    DebugBits, "debug bit", [
        REQ_STATE "req_state" "Log the steps of the request state machine"
        WORKSPACE "workspace" "Log workspace operations"
        WAITINGLIST "waitinglist" "Log waiting-list events"
        SYNCVSL "syncvsl" "Write every log record at once"
        HASHEDGE "hashedge" "Provoke edge cases of the hash"
        VCLREL "vclrel" "Release VCL programs as soon as possible"
        LURKER "lurker" "Log the actions of the ban lurker"
        ESI_CHOP "esi_chop" "Feed the ESI parser in tiny pieces"
        FLUSH_HEAD "flush_head" "Send the HTTP/1 head separately"
        VTC_MODE "vtc_mode" "Behave as varnishtest expects"
        WITNESS "witness" "Log lock order"
        VSM_KEEP "vsm_keep" "Keep the shared memory after a restart"
        SLOW_ACCEPTOR "slow_acceptor" "Accept connections slowly"
        H2_NOCHECK "h2_nocheck" "Skip some HTTP/2 checks"
        VMOD_SO_KEEP "vmod_so_keep" "Keep copies of module files"
        PROCESSORS "processors" "Log fetch and delivery processors"
        PROTOCOL "protocol" "Log protocol details"
        VCL_KEEP "vcl_keep" "Keep compiled VCL"
        LCK "lck" "Count lock operations in more detail"
    ]
}

bit_set! {
    /// The `feature` parameter.
    FeatureBits, "feature bit", [
        HTTP2 "http2" "Enable HTTP/2."
        SHORT_PANIC "short_panic" "Keep panic messages short."
        NO_COREDUMP "no_coredump" "Disable core dumps; takes effect when the worker starts."
        HTTPS_SCHEME "https_scheme" "Take the host from an absolute https URI in the request line. Without it, such a request gets 400."
        HTTP_DATE_POSTEL "http_date_postel" "Accept other formats of Date, Last-Modified and Expires."
        ESI_IGNORE_HTTPS "esi_ignore_https" "Treat https in esi:include as http."
        ESI_DISABLE_XML_CHECK "esi_disable_xml_check" "Process ESI in bodies that do not look like XML."
        ESI_IGNORE_OTHER_ELEMENTS "esi_ignore_other_elements" "Ignore XML errors outside of ESI elements."
        ESI_REMOVE_BOM "esi_remove_bom" "Remove a byte-order mark at the start of an ESI body."
        ESI_INCLUDE_ONERROR "esi_include_onerror" "Obey the onerror attribute of esi:include."
        WAIT_SILO "wait_silo" "Serve requests only after persistent storage is loaded."
        VALIDATE_HEADERS "validate_headers" "Check header values set in VCL against RFC 9110 section 5.5."
        BUSY_STATS_RATE "busy_stats_rate" "Make busy workers obey thread_stats_rate."
        TRACE "trace" "Trace VCL from the start, including vcl_init and vcl_fini."
        VCL_REQ_RESET "vcl_req_reset" "Stop client VCL when the client has closed the connection."
        RFC9111 "rfc9111" "Cache as RFC 9111 defines it, instead of by Varnish's policy."
    ]
}

bit_set! {
    /// The `experimental` parameter.
    ExperimentalBits, "experimental bit", [
        DROP_POOLS "drop_pools" "Allow thread_pools to shrink at run time"
    ]
}

bit_set! {
    /// The `vcc_feature` parameter.
    VccFeatureBits, "vcc_feature bit", [
        ERR_UNREF "err_unref" "Treat unreferenced VCL objects as errors."
        ALLOW_INLINE_C "allow_inline_c" "Allow inline C."
        UNSAFE_PATH "unsafe_path" "Allow '/' in the paths of modules and includes, and 'import ... from'."
    ]
}

/// The `vsl_mask` parameter: a set bit keeps the tag of that number out of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VslMask(pub [u8; 32]);

impl VslMask {
    /// Returns whether records with this tag are dropped.
    #[inline]
    pub fn hides(&self, tag: u8) -> bool {
        self.0[usize::from(tag >> 3)] & (0x80 >> (tag & 7)) != 0
    }
}

impl BitSet for VslMask {
    fn names(&self) -> &'static [&'static str] {
        crate::table_tags::TAGS
    }
    fn prose(&self) -> &'static [&'static str] {
        &[]
    }
    fn noun(&self) -> &'static str {
        "VSL tag"
    }
    fn sign(&self) -> char {
        '-'
    }
    fn get(&self, bit: usize) -> bool {
        self.hides(bit as u8)
    }
    fn put(&mut self, bit: usize, on: bool) {
        let mask = 0x80 >> (bit & 7);
        if on { self.0[bit >> 3] |= mask } else { self.0[bit >> 3] &= !mask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_applied_in_order() {
        let mut debug = DebugBits::default();
        assign(&mut debug, "+syncvsl,+LURKER").unwrap();
        assert!(debug.has(DebugBits::SYNCVSL) && debug.has(DebugBits::LURKER));
        assert_eq!(show(&debug), "none,+syncvsl,+lurker");
        assign(&mut debug, "all").unwrap();
        assert_eq!(show(&debug), "all");
        assert_eq!(assign(&mut debug, "+nope").unwrap_err(), "Unknown debug bit (+nope)\n");
        assert_eq!(assign(&mut debug, "nope").unwrap_err(), "Missing '+' or '-' (nope)\n");
    }

    #[test]
    fn set_bits_of_the_mask_hide_tags() {
        let mut mask = VslMask::default();
        assert_eq!(show(&mask), "all");
        assign(&mut mask, "-Debug,-hash").unwrap();
        assert_eq!(show(&mask), "all,-Debug,-Hash");
        assert!(mask.hides(1) && !mask.hides(2));
        assign(&mut mask, "none").unwrap();
        assert_eq!(show(&mask), "none");
    }
}
