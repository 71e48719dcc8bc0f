//! The parameters in the manager: values, current bounds (some depend on the value of another
//! parameter) and write protection.

use std::fmt;

use crate::assign::{Bounds, assign, parse_bool};
use crate::nearest;
use crate::value;
use crate::{ALIASES, Alias, Kind, Params, SPECS, Slot, Spec, flags};

/// When a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// At once or gradually.
    Now,
    /// When the worker is restarted.
    AtRestart,
    /// When VCL is loaded again.
    AtReload,
}

/// The reason why a parameter could not be set or shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetError {
    /// Status of the CLI: 106 for a bad parameter, 107 if it is not allowed, 300 if it is impossible.
    pub status: u16,
    /// Text for the user.
    pub text: String,
}

impl SetError {
    /// Creates the error for an unknown name, which the text contains as `shown`. Suggests a similar name.
    pub(crate) fn unknown(name: &str, shown: &str) -> SetError {
        let similar = ParamSet::similar(name).map(|near| format!("\nDid you mean \"{near}\"?"));
        SetError { status: 106, text: format!("Unknown parameter {shown}{}", similar.unwrap_or_default()) }
    }
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for SetError {}

/// A parameter, its current bounds and its protection.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub spec: &'static Spec,
    pub min: Option<String>,
    pub max: Option<String>,
    pub default: String,
    pub protected: bool,
}

impl Entry {
    fn bounds(&self) -> Bounds<'_> {
        Bounds {
            min: self.min.as_deref(),
            max: self.max.as_deref(),
            min_reason: self.spec.min_reason,
            max_reason: self.spec.max_reason,
        }
    }
}

/// All parameters, with access by name.
#[derive(Clone, Debug)]
pub struct ParamSet {
    values: Params,
    entries: Vec<Entry>,
    storages: Vec<String>,
}

impl Default for ParamSet {
    fn default() -> ParamSet {
        ParamSet::new()
    }
}

impl ParamSet {
    /// Creates a set in which every parameter has its default.
    pub fn new() -> ParamSet {
        let mut values = Params::blank();
        let mut normal = |spec: &Spec, text: &str| {
            let field = values.slot_mut(spec.name).expect("the tables define the field");
            let read = assign(spec.kind, field, text, Bounds::default());
            debug_assert!(read.is_ok(), "{}: {text}: {read:?}", spec.name);
            values.slot(spec.name).map_or_else(String::new, |slot| value::show(spec.kind, &slot))
        };
        let mut entries: Vec<Entry> = SPECS
            .iter()
            .map(|spec| Entry {
                spec,
                min: spec.min.map(|text| normal(spec, text)),
                max: spec.max.map(|text| normal(spec, text)),
                default: normal(spec, spec.default),
                protected: false,
            })
            .collect();
        entries.sort_by_key(|entry| entry.spec.name);
        let mut set = ParamSet { values, entries, storages: Vec::new() };
        for name in ["thread_pool_min", "thread_pool_max", "vsl_buffer", "vsl_reclen"] {
            set.update_bounds(name);
        }
        set
    }

    /// The values.
    pub fn values(&self) -> &Params {
        &self.values
    }

    /// Returns all parameters by name, without aliases.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the parameter with this name.
    pub(crate) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.binary_search_by_key(&name, |entry| entry.spec.name).ok().map(|at| &self.entries[at])
    }

    fn entry_mut(&mut self, name: &str) -> Option<&mut Entry> {
        let at = self.entries.binary_search_by_key(&name, |entry| entry.spec.name).ok()?;
        Some(&mut self.entries[at])
    }

    pub(crate) fn alias(name: &str) -> Option<&'static Alias> {
        ALIASES.iter().find(|alias| alias.name == name)
    }

    /// Adds a storage that `h2_rxbuf_storage` may select, in addition to Transient.
    pub fn add_storage(&mut self, name: &str) {
        self.storages.push(name.to_owned());
    }

    /// Changes a default and the current value. Used for defaults of the platform, before the user sets anything.
    pub fn set_default(&mut self, name: &str, text: &str) -> Result<(), SetError> {
        self.set(name, text)?;
        let shown = self.value_text(name).unwrap_or_default();
        if let Some(entry) = self.entry_mut(name) {
            entry.default = shown;
        }
        Ok(())
    }

    /// Makes a parameter read-only. Fails if it does not exist.
    pub fn protect(&mut self, name: &str) -> Result<(), SetError> {
        let name = ParamSet::alias(name).map_or(name, |alias| alias.target);
        match self.entry_mut(name) {
            Some(entry) => entry.protected = true,
            None => return Err(SetError::unknown(name, name)),
        }
        Ok(())
    }

    /// Returns the value as text.
    pub fn value_text(&self, name: &str) -> Option<String> {
        let entry = self.entry(name)?;
        self.values.slot(name).map(|slot| value::show(entry.spec.kind, &slot))
    }

    /// Returns the parameter whose name is most similar to an unknown one.
    pub fn similar(name: &str) -> Option<&'static str> {
        nearest(name, SPECS.iter().map(|spec| spec.name))
    }

    /// Returns the values that a parameter may have, in words.
    pub fn range(&self, name: &str) -> Option<String> {
        let entry = self.entry(ParamSet::alias(name).map_or(name, |alias| alias.target))?;
        let mut words = vec![format!("the default is {}", entry.default)];
        words.extend(entry.min.as_ref().map(|min| format!("the least value {min}")));
        words.extend(entry.max.as_ref().map(|max| format!("the greatest {max}")));
        if !entry.spec.units.is_empty() {
            words.push(format!("the unit is {}", entry.spec.units));
        }
        if let Some(Slot::Bits(bits)) =
            self.values.slot(entry.spec.name).filter(|_| entry.spec.kind != Kind::Mask)
        {
            words.push(format!("its words are {}, each with + or - before it", bits.names().join(", ")));
        }
        Some(words.join(", "))
    }

    /// Sets a parameter, by its name or a deprecated one.
    pub fn set(&mut self, name: &str, text: &str) -> Result<Effect, SetError> {
        self.change(name, Some(text))
    }

    /// Returns the parameters that differ from their defaults, with their values, for [`Self::restore`].
    pub fn changed(&self) -> Vec<(String, String)> {
        let value = |entry: &Entry| self.value_text(entry.spec.name).filter(|text| *text != entry.default);
        self.entries.iter().filter_map(|entry| Some((entry.spec.name.to_owned(), value(entry)?))).collect()
    }

    /// Sets the parameters as in another set, even those that are read-only: those in the list to their values, and the
    /// others to their defaults. Returns the reasons why some of them could not be set.
    pub fn restore(&mut self, changed: &[(String, String)]) -> Vec<String> {
        let mut refused = Vec::new();
        // Twice, because the bounds of some depend on others.
        for _ in 0..2 {
            refused.clear();
            for entry in self.entries.clone() {
                let wanted = changed.iter().find(|(name, _)| name == entry.spec.name);
                let text = wanted.map_or(&entry.default, |(_, text)| text);
                if self.value_text(entry.spec.name).as_ref() != Some(text)
                    && let Err(why) = self.write(&entry, text)
                {
                    refused.push(format!("{}: {why}", entry.spec.name));
                }
            }
        }
        let unknown = changed.iter().filter(|(name, _)| self.entry(name).is_none());
        refused.extend(unknown.map(|(name, _)| format!("{name} is unknown")));
        refused
    }

    /// Sets a parameter to its default.
    pub fn reset(&mut self, name: &str) -> Result<Effect, SetError> {
        self.change(name, None)
    }

    fn change(&mut self, name: &str, text: Option<&str>) -> Result<Effect, SetError> {
        let alias = ParamSet::alias(name);
        let target = alias.map_or(name, |alias| alias.target);
        let Some(entry) = self.entry(target).cloned() else {
            return Err(SetError::unknown(name, &format!("\"{name}\".")));
        };
        if entry.spec.has(flags::NOT_IMPLEMENTED) {
            let text = format!("parameter \"{name}\" is not available on this platform.");
            return Err(SetError { status: 300, text });
        }
        if entry.protected {
            return Err(SetError { status: 107, text: format!("parameter \"{name}\" is protected.") });
        }
        let bit = alias.and_then(|alias| alias.bit);
        let default = bit.map_or(entry.default.as_str(), |bit| default_of_bit(&entry, bit));
        let text = text.unwrap_or(default);
        let refuse = |fault: String| SetError {
            status: 106,
            text: format!("{fault}\n(attempting to set param '{name}' to '{text}')"),
        };
        let mut wanted = text.to_owned();
        if let Some(bit) = bit {
            let sign = if parse_bool(text).map_err(refuse)? { '+' } else { '-' };
            wanted = format!("{sign}{bit}");
        }
        self.write(&entry, &wanted).map_err(refuse)?;
        Ok(if entry.spec.has(flags::MUST_RESTART) {
            Effect::AtRestart
        } else if entry.spec.has(flags::MUST_RELOAD) {
            Effect::AtReload
        } else {
            Effect::Now
        })
    }

    fn write(&mut self, entry: &Entry, text: &str) -> Result<(), String> {
        let spec = entry.spec;
        if spec.kind == Kind::Storage && text != "Transient" && !self.storages.iter().any(|s| s == text) {
            return Err(format!("unknown storage backend '{text}'"));
        }
        let is_bits = matches!(
            spec.kind,
            Kind::Debug | Kind::Experimental | Kind::Feature | Kind::VccFeature | Kind::Mask
        );
        let text = if is_bits && text == "default" { &entry.default } else { text };
        let mut values = self.values.clone();
        let field = values.slot_mut(spec.name).expect("the tables define the field");
        assign(spec.kind, field, text, entry.bounds())?;
        self.values = values;
        self.update_bounds(spec.name);
        Ok(())
    }

    /// Updates the bounds that depend on the parameter that was set.
    fn update_bounds(&mut self, name: &str) {
        let values = &self.values;
        let (min, max) = match name {
            "thread_pool_min" => {
                let reserve = u64::from(values.thread_pool_min) * 950 / 1000;
                (
                    Some(("thread_pool_max", values.thread_pool_min.to_string())),
                    Some(("thread_pool_reserve", reserve.to_string())),
                )
            }
            "thread_pool_max" => (None, Some(("thread_pool_min", values.thread_pool_max.to_string()))),
            "vsl_buffer" => (None, Some(("vsl_reclen", values.vsl_buffer.saturating_sub(12).to_string()))),
            "vsl_reclen" => (Some(("vsl_buffer", (values.vsl_reclen + 12).to_string())), None),
            _ => return,
        };
        if let Some((other, bound)) = min
            && let Some(entry) = self.entry_mut(other)
        {
            entry.min = Some(bound);
        }
        if let Some((other, bound)) = max
            && let Some(entry) = self.entry_mut(other)
        {
            entry.max = Some(bound);
        }
    }
}

/// Returns the default of a bit of a set, as the text of a flag.
fn default_of_bit(entry: &Entry, bit: &str) -> &'static str {
    let mut values = Params::blank();
    if let Some(field) = values.slot_mut(entry.spec.name) {
        let read = assign(entry.spec.kind, field, &entry.default, entry.bounds());
        debug_assert!(read.is_ok(), "{}: {read:?}", entry.spec.name);
    }
    match values.slot(entry.spec.name) {
        Some(Slot::Bits(bits))
            if bits.names().iter().position(|name| *name == bit).is_some_and(|at| bits.get(at)) =>
        {
            "on"
        }
        _ => "off",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_bounds() {
        let mut set = ParamSet::new();
        for spec in SPECS.iter().filter(|spec| !spec.has(flags::NOT_IMPLEMENTED)) {
            set.reset(spec.name).unwrap();
            assert!(!spec.prose.is_empty() && !spec.prose.ends_with(char::is_whitespace), "{}", spec.name);
        }
        assert_eq!(set.values(), &Params::default());
        assert_eq!(set.values().default_ttl, 120.0);
        assert_eq!(set.values().vsl_space, 80 << 20);
    }

    /// Parameters that a user of Varnish 7.7 to 9.0 may set.
    const KNOWN: &str = "accept_filter acceptor_sleep_decay acceptor_sleep_incr acceptor_sleep_max auto_restart \
        backend_idle_timeout backend_local_error_holddown backend_remote_error_holddown backend_wait_limit \
        backend_wait_timeout ban_any_variant ban_cutoff ban_dups ban_lurker_age ban_lurker_batch \
        ban_lurker_holdoff ban_lurker_sleep between_bytes_timeout cc_command cc_warnings cli_limit \
        cli_timeout clock_skew clock_step connect_timeout critbit_cooloff debug default_grace default_keep \
        default_ttl experimental feature fetch_chunksize fetch_maxchunksize first_byte_timeout gzip_buffer \
        gzip_level gzip_memlevel h2_header_table_size h2_initial_window_size h2_max_concurrent_streams \
        h2_max_frame_size h2_max_header_list_size h2_rapid_reset h2_rapid_reset_limit h2_rapid_reset_period \
        h2_rx_window_increment h2_rx_window_low_water h2_rxbuf_storage h2_window_timeout http1_iovs \
        http_gzip_support http_max_hdr http_range_support http_req_hdr_len http_req_overflow_status \
        http_req_size http_resp_hdr_len http_resp_size idle_send_timeout listen_depth lru_interval \
        max_esi_depth max_restarts max_retries max_vcl max_vcl_handling nuke_limit panic_buffer \
        pcre2_depth_limit pcre2_jit_compilation pcre2_match_limit ping_interval pipe_sess_max \
        pipe_task_deadline pipe_timeout pool_req pool_sess pool_vbo prefer_ipv6 rush_exponent send_timeout \
        shortlived sigsegv_handler ssl_buffer sslbuf_pool startup_timeout syslog_cli_traffic tcp_fastopen \
        tcp_keepalive_intvl tcp_keepalive_probes tcp_keepalive_time thread_pool_add_delay \
        thread_pool_destroy_delay thread_pool_fail_delay thread_pool_max thread_pool_min thread_pool_reserve \
        thread_pool_stack thread_pool_timeout thread_pool_watchdog thread_pools thread_queue_limit \
        thread_stats_rate timeout_idle timeout_linger tls_cleanup_batch tls_err_dup_servername \
        tls_handshake_timeout tls_ja3 transit_buffer uncacheable_ttl vary_notice vcc_allow_inline_c \
        vcc_err_unref vcc_feature vcc_unsafe_path vcl_cooldown vcl_path vmod_path vsl_buffer vsl_mask \
        vsl_reclen vsl_space vsm_free_cooldown workspace_backend workspace_client workspace_session \
        workspace_thread";

    #[test]
    fn every_parameter_of_varnish_exists() {
        let set = ParamSet::new();
        let missing: Vec<&str> = KNOWN
            .split_whitespace()
            .filter(|name| set.entry(name).is_none() && ParamSet::alias(name).is_none())
            .collect();
        assert!(missing.is_empty(), "missing: {missing:?}");
    }

    #[test]
    fn bounds_follow_other_parameters() {
        let mut set = ParamSet::new();
        set.set("thread_pool_max", "10000").unwrap();
        set.set("thread_pool_min", "8000").unwrap();
        let error = set.reset("thread_pool_max").unwrap_err();
        assert!(error.text.starts_with("Must be at least 8000 (thread_pool_min)\n"), "{error}");
        set.set("thread_pool_min", "8").unwrap();
        set.set("thread_pool_max", "10").unwrap();
        let error = set.reset("thread_pool_min").unwrap_err();
        assert!(error.text.starts_with("Must be no more than 10 (thread_pool_max)\n"), "{error}");
        set.reset("thread_pool_max").unwrap();
        set.reset("thread_pool_min").unwrap();
        let error = set.set("thread_pool_reserve", "96").unwrap_err();
        assert_eq!(
            error.text,
            "Must be no more than 95 (95% of thread_pool_min)\n\n(attempting to set param 'thread_pool_reserve' to '96')"
        );
        set.set("thread_pool_max", "unlimited").unwrap();
        assert_eq!(set.value_text("thread_pool_max").unwrap(), "unlimited");
    }

    #[test]
    fn counts_for_backends_are_not_negative() {
        let mut set = ParamSet::new();
        let own = [
            "backend_breaker_failures",
            "backend_max_requests",
            "backend_retries",
            "backend_retry_budget",
            "backend_breaker_pause",
            "backend_breaker_period",
            "backend_max_age",
            "stale_if_error",
        ];
        for name in own {
            for text in ["-1", " -1", "-4294967295"] {
                let error = set.set(name, text).unwrap_err().text;
                let is_usual = error.starts_with("Must be at least 0")
                    || error.starts_with("Must be greater or equal to 0");
                let is_blank = text.starts_with(' ') && error.starts_with("Invalid");
                assert!(is_usual || is_blank, "{name} {text:?}: {error}");
            }
        }
        set.set("backend_breaker_failures", "unlimited").unwrap();
        // As in Varnish.
        set.set("backend_wait_limit", "-1").unwrap();
        assert_eq!(set.value_text("backend_wait_limit").unwrap(), "unlimited");
    }

    #[test]
    fn aliases_set_their_target() {
        let mut set = ParamSet::new();
        set.set("deprecated_dummy", "+syncvsl").unwrap();
        assert!(set.values().debug.has(crate::DebugBits::SYNCVSL));
        set.set("vcc_allow_inline_c", "on").unwrap();
        assert!(set.values().vcc_feature.has(crate::VccFeatureBits::ALLOW_INLINE_C));
        set.set("vcc_err_unref", "off").unwrap();
        assert!(!set.values().vcc_feature.has(crate::VccFeatureBits::ERR_UNREF));
    }

    #[test]
    fn aliases_of_bits_are_reset_alone() {
        let mut set = ParamSet::new();
        let default = set.value_text("vcc_feature").unwrap();
        for (name, changed) in
            [("vcc_err_unref", "off"), ("vcc_allow_inline_c", "on"), ("vcc_unsafe_path", "off")]
        {
            set.set(name, changed).unwrap();
            assert_ne!(set.value_text("vcc_feature").unwrap(), default, "{name}");
            set.reset(name).unwrap();
            assert_eq!(set.value_text("vcc_feature").unwrap(), default, "{name}");
        }
        set.set("vcc_unsafe_path", "off").unwrap();
        set.reset("vcc_err_unref").unwrap();
        assert!(!set.values().vcc_feature.has(crate::VccFeatureBits::UNSAFE_PATH));
    }

    #[test]
    fn invalid_values_are_refused() {
        let mut set = ParamSet::new();
        let status = |set: &mut ParamSet, name: &str, text: &str| set.set(name, text).map_err(|e| e.status);
        for (name, text) in [
            ("default_ttl", "-1"),
            ("default_ttl", "1x"),
            ("default_ttl", "1 x"),
            ("acceptor_sleep_decay", "0.42 is not a number"),
            ("acceptor_sleep_max", "20"),
            ("prefer_ipv6", "foobar"),
            ("http_max_hdr", "0"),
            ("workspace_thread", "1b"),
            ("workspace_thread", "1m"),
            ("workspace_thread", "x"),
            ("user", "///"),
            ("pool_req", "10"),
            ("pool_req", "10,1,1"),
            ("pool_req", "10,10,a"),
            ("pool_sess", "\""),
            ("vsl_mask", "FooBar"),
            ("h2_rxbuf_storage", "nowhere"),
        ] {
            assert_eq!(status(&mut set, name, text), Err(106), "{name} {text}");
        }
        let unknown = |set: &mut ParamSet, name| set.set(name, "1").unwrap_err().text;
        assert_eq!(
            unknown(&mut set, "thread_pool_maxx"),
            "Unknown parameter \"thread_pool_maxx\".\nDid you mean \"thread_pool_max\"?"
        );
        assert_eq!(unknown(&mut set, "nope"), "Unknown parameter \"nope\".");
        set.protect("cli_timeout").unwrap();
        assert_eq!(status(&mut set, "cli_timeout", "1m"), Err(107));
        assert_eq!(status(&mut set, "accept_filter", "on"), Err(300));
        assert_eq!(status(&mut set, "first_byte_timeout", "never"), Ok(Effect::Now));
        assert_eq!(status(&mut set, "listen_depth", "7"), Ok(Effect::AtRestart));
    }

    #[test]
    fn a_set_is_restored_even_where_it_is_read_only() {
        let mut before = ParamSet::new();
        for (name, value) in
            [("vsl_reclen", "5000"), ("vsl_buffer", "1m"), ("default_ttl", "7"), ("thread_pool_min", "7000")]
        {
            let _ = before.set(name, value);
        }
        let mut after = ParamSet::new();
        after.set("default_grace", "1").unwrap();
        after.protect("default_ttl").unwrap();
        assert!(after.restore(&before.changed()).is_empty());
        assert_eq!(after.values(), before.values());
        assert_eq!(after.changed(), before.changed());
        let refused = after.restore(&[("default_ttl".into(), "x".into()), ("nosuch".into(), "1".into())]);
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].starts_with("default_ttl: ") && refused[1] == "nosuch is unknown");
    }
}
