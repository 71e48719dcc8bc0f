//! The settings of lookups.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts, ServerOrderingStrategy,
};
use hickory_resolver::system_conf;

/// The settings, which may change at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Addresses of name servers, separated by commas or spaces, each with an optional port. They replace those of
    /// `/etc/resolv.conf`, and its search list.
    pub servers: String,
    /// The shortest and the longest time between two lookups of a name.
    pub ttl: (Duration, Duration),
    /// Time after a failed lookup until the next one.
    pub retry: Duration,
    /// Whether IPv6 is the first family to be asked for.
    pub prefer_ipv6: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        let ttl = (Duration::from_secs(1), Duration::from_hours(1));
        Settings { servers: String::new(), ttl, retry: Duration::from_secs(5), prefer_ipv6: false }
    }
}

/// Parses a list of name servers.
pub fn servers(text: &str) -> Result<Vec<SocketAddr>, String> {
    let parse = |word: &str| {
        let with_port = word.parse::<SocketAddr>().ok();
        let bare = || word.trim_matches(['[', ']']).parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 53));
        with_port.or_else(bare).ok_or_else(|| format!("{word} is not the address of a name server"))
    };
    text.split([',', ' ']).filter(|word| !word.is_empty()).map(parse).collect()
}

/// Returns the configuration for the given servers, or that of `/etc/resolv.conf`.
pub fn configuration(given: &str, resolv_conf: &[u8]) -> Result<(ResolverConfig, ResolverOpts), String> {
    let servers = servers(given)?;
    let (config, mut options) = if servers.is_empty() {
        system_conf::parse_resolv_conf(resolv_conf).map_err(|error| format!("/etc/resolv.conf: {error}"))?
    } else {
        let servers = servers.into_iter().map(name_server).collect();
        (ResolverConfig::from_parts(None, Vec::new(), servers), ResolverOpts::default())
    };
    // `Name` decides how long answers are used.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
    options.timeout = options.timeout.clamp(Duration::from_millis(100), Duration::from_secs(30));
    options.attempts = options.attempts.clamp(1, 5);
    Ok((config, options))
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let mut connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = address.port();
    }
    NameServerConfig::new(address.ip(), true, connections.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_addresses_and_optional_ports() {
        let expected: Vec<SocketAddr> =
            ["127.0.0.1:53", "[::1]:53", "[::1]:5353", "10.0.0.1:54"].map(|a| a.parse().unwrap()).into();
        assert_eq!(servers("127.0.0.1, ::1 [::1]:5353,10.0.0.1:54").unwrap(), expected);
        assert_eq!(servers("ns.example").unwrap_err(), "ns.example is not the address of a name server");
    }

    #[test]
    fn resolv_conf_is_obeyed_and_junk_is_not_fatal() {
        let text = b"search a.example b.example\nnameserver 127.0.0.9\noptions ndots:4 timeout:1 attempts:3\n\xff junk\n";
        let (config, options) = configuration("", text).unwrap();
        assert_eq!((config.search().len(), config.name_servers().len()), (2, 1));
        assert_eq!((options.ndots, options.attempts, options.timeout), (4, 3, Duration::from_secs(1)));
        assert!(configuration("", b"").is_err(), "no servers");
        assert!(configuration("127.0.0.1:5300", b"junk").is_ok());
    }
}
