//! Settings of the kernel, in /proc/sys and /sys.

use super::facts::{Facts, Finding, Grade, Remedy, shown};

/// The files to read.
pub const FILES: &[&str] = &[
    "/proc/sys/net/core/somaxconn",
    "/proc/sys/net/ipv4/tcp_max_syn_backlog",
    "/proc/sys/net/ipv4/ip_local_port_range",
    "/proc/sys/net/ipv4/tcp_tw_reuse",
    "/proc/sys/net/ipv4/tcp_tw_recycle",
    "/proc/sys/net/ipv4/tcp_max_tw_buckets",
    "/proc/sys/net/ipv4/tcp_congestion_control",
    "/proc/sys/net/ipv4/tcp_slow_start_after_idle",
    "/proc/sys/net/core/rmem_max",
    "/proc/sys/net/core/wmem_max",
    "/proc/sys/net/netfilter/nf_conntrack_max",
    "/proc/sys/net/netfilter/nf_conntrack_count",
    "/proc/sys/fs/file-max",
    "/proc/sys/fs/nr_open",
    "/proc/sys/vm/overcommit_memory",
    HUGE_PAGES,
    CLOCK_SOURCE,
    "/proc/meminfo",
    "/proc/self/mounts",
    "/run/systemd/timesync/synchronized",
    "/run/chrony/chronyd.pid",
    "/run/chronyd.pid",
    "/run/ntpd.pid",
];

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// Clocks that a program reads without a system call.
const FAST_CLOCKS: [&str; 5] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "vmclock"];

/// The values of a setting that are good.
enum Wanted {
    AtLeast(u64),
    OneOf(&'static [&'static str]),
    /// Two ports, with at least so many between them.
    Ports(u64),
}

/// A setting that is judged by its own value.
struct Rule {
    topic: &'static str,
    /// The name as sysctl writes it.
    name: &'static str,
    wanted: Wanted,
    /// The value that is proposed.
    value: &'static str,
    /// The grade of another value.
    otherwise: Grade,
    why: &'static str,
    /// Whether a kernel without the setting is as it should be.
    may_miss: bool,
}

const RULES: &[Rule] = &[
    Rule {
        topic: "backlog",
        name: "net.core.somaxconn",
        wanted: Wanted::AtLeast(1024),
        value: "4096",
        otherwise: Grade::Bad,
        why: "new connections wait in a queue of at most this length; beyond it they are dropped",
        may_miss: false,
    },
    Rule {
        topic: "backlog",
        name: "net.ipv4.tcp_max_syn_backlog",
        wanted: Wanted::AtLeast(1024),
        value: "4096",
        otherwise: Grade::Better,
        why: "connections whose handshake is in progress wait in a queue of this length",
        may_miss: false,
    },
    Rule {
        topic: "ports",
        name: "net.ipv4.ip_local_port_range",
        wanted: Wanted::Ports(28_000),
        value: "10240 65535",
        otherwise: Grade::Better,
        why: "each connection to the same web server takes a port of this range",
        may_miss: false,
    },
    Rule {
        topic: "time-wait",
        name: "net.ipv4.tcp_tw_reuse",
        wanted: Wanted::OneOf(&["1", "2"]),
        value: "1",
        otherwise: Grade::Better,
        why: "a port of a connection that has ended cannot be used for a minute without it",
        may_miss: false,
    },
    Rule {
        topic: "time-wait",
        name: "net.ipv4.tcp_tw_recycle",
        wanted: Wanted::OneOf(&["0"]),
        value: "0",
        otherwise: Grade::Bad,
        why: "connections of clients behind one address are dropped at random",
        may_miss: true,
    },
    Rule {
        topic: "time-wait",
        name: "net.ipv4.tcp_max_tw_buckets",
        wanted: Wanted::AtLeast(8192),
        value: "65536",
        otherwise: Grade::Better,
        why: "beyond this number, connections end without protection from late packets",
        may_miss: false,
    },
    Rule {
        topic: "congestion",
        name: "net.ipv4.tcp_congestion_control",
        wanted: Wanted::OneOf(&["cubic", "bbr", "bbr2", "bbr3", "dctcp"]),
        value: "cubic",
        otherwise: Grade::Better,
        why: "other methods use less of a fast line to distant clients",
        may_miss: false,
    },
    Rule {
        topic: "congestion",
        name: "net.ipv4.tcp_slow_start_after_idle",
        wanted: Wanted::OneOf(&["0"]),
        value: "0",
        otherwise: Grade::Better,
        why: "otherwise each connection that was idle begins slowly again",
        may_miss: false,
    },
    Rule {
        topic: "datagrams",
        name: "net.core.rmem_max",
        wanted: Wanted::AtLeast(2_500_000),
        value: "7500000",
        otherwise: Grade::Better,
        why: "for HTTP/3 only: datagrams that arrive in a burst need this buffer",
        may_miss: false,
    },
    Rule {
        topic: "datagrams",
        name: "net.core.wmem_max",
        wanted: Wanted::AtLeast(2_500_000),
        value: "7500000",
        otherwise: Grade::Better,
        why: "for HTTP/3 only: datagrams that are sent in a burst need this buffer",
        may_miss: false,
    },
    Rule {
        topic: "descriptors",
        name: "fs.file-max",
        wanted: Wanted::AtLeast(262_144),
        value: "1048576",
        otherwise: Grade::Bad,
        why: "all processes together have at most so many open files and connections",
        may_miss: false,
    },
    Rule {
        topic: "descriptors",
        name: "fs.nr_open",
        wanted: Wanted::AtLeast(131_072),
        value: "1048576",
        otherwise: Grade::Bad,
        why: "the service cannot get a higher limit on descriptors than this",
        may_miss: false,
    },
    Rule {
        topic: "memory",
        name: "vm.overcommit_memory",
        wanted: Wanted::OneOf(&["0", "1"]),
        value: "0",
        otherwise: Grade::Bad,
        why: "with 2, the address space that the cache reserves counts as memory, and it cannot start",
        may_miss: false,
    },
];

fn path_of(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

fn number(facts: &Facts, path: &str) -> Option<u64> {
    facts.files.get(path)?.trim().parse().ok()
}

/// Returns whether a value is good, or `None` if it is not a value of this setting.
fn is_good(wanted: &Wanted, value: &str) -> Option<bool> {
    match wanted {
        Wanted::AtLeast(least) => value.parse::<u64>().ok().map(|value| value >= *least),
        Wanted::OneOf(values) if value.is_empty() || value.contains(char::is_whitespace) => {
            (values.is_empty()).then_some(true)
        }
        Wanted::OneOf(values) => {
            // A number is expected where all good values are numbers.
            let numbers = values.iter().all(|value| value.parse::<u64>().is_ok());
            (!numbers || value.parse::<u64>().is_ok()).then(|| values.contains(&value))
        }
        Wanted::Ports(least) => {
            let mut words = value.split_whitespace().map(str::parse::<u16>);
            let (low, high) = (words.next()?.ok()?, words.next()?.ok()?);
            let is_range = low <= high && words.next().is_none();
            is_range.then(|| u64::from(high - low) + 1 >= *least)
        }
    }
}

impl Wanted {
    fn describe(&self) -> String {
        match self {
            Wanted::AtLeast(least) => format!("at least {least}"),
            Wanted::OneOf(values) => values.join(" or "),
            Wanted::Ports(least) => format!("a range of at least {least} ports"),
        }
    }
}

fn judge(rule: &Rule, facts: &Facts) -> Finding {
    let value = facts.files.get(&path_of(rule.name)).map(|text| text.trim());
    let (grade, is) = match value {
        None if rule.may_miss => (Grade::Good, format!("{} does not exist", rule.name)),
        None => (Grade::Unknown, format!("{} cannot be read", rule.name)),
        Some(value) => {
            let grade = match is_good(&rule.wanted, value) {
                Some(true) => Grade::Good,
                Some(false) => rule.otherwise,
                None => Grade::Unknown,
            };
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            (grade, format!("{} = {}", rule.name, shown(&value)))
        }
    };
    let remedy = match grade {
        Grade::Good | Grade::Unknown => Remedy::None,
        Grade::Better | Grade::Bad => Remedy::Sysctl(rule.name, rule.value.to_owned()),
    };
    Finding { topic: rule.topic, grade, is, should: rule.wanted.describe(), why: rule.why, remedy }
}

pub fn examine(facts: &Facts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().map(|rule| judge(rule, facts)).collect();
    findings.push(connection_tracking(facts));
    findings.push(huge_pages(facts));
    findings.push(clock_source(facts));
    findings.push(synchronization(facts));
    findings
}

/// The share of the table of connections, in percent, beyond which it is nearly full.
const NEARLY_FULL: u64 = 75;

fn connection_tracking(facts: &Facts) -> Finding {
    const MAXIMUM: &str = "net.netfilter.nf_conntrack_max";
    let maximum = number(facts, &path_of(MAXIMUM));
    let count = number(facts, "/proc/sys/net/netfilter/nf_conntrack_count");
    let (grade, is) = match (facts.files.get(&path_of(MAXIMUM)), maximum, count) {
        (None, ..) => (Grade::Good, "the firewall does not track connections".to_owned()),
        (_, Some(maximum), count) => {
            let count = count.unwrap_or(0);
            let is_full = count.saturating_mul(100) >= maximum.saturating_mul(NEARLY_FULL);
            let grade = match maximum {
                _ if is_full => Grade::Bad,
                0..131_072 => Grade::Better,
                _ => Grade::Good,
            };
            (grade, format!("{MAXIMUM} = {maximum}, of which {count} are used"))
        }
        _ => (Grade::Unknown, format!("{MAXIMUM} cannot be read")),
    };
    let wanted = maximum.unwrap_or(0).saturating_mul(2).max(262_144);
    let remedy = match grade {
        Grade::Better | Grade::Bad => Remedy::Sysctl(MAXIMUM, wanted.to_string()),
        _ => Remedy::None,
    };
    Finding {
        topic: "conntrack",
        grade,
        is,
        should: "at least 131072, and not nearly full".to_owned(),
        why: "when the firewall's table of connections is full, new ones are dropped",
        remedy,
    }
}

fn huge_pages(facts: &Facts) -> Finding {
    let text = facts.files.get(HUGE_PAGES);
    let chosen = text.and_then(|text| text.split_once('[')?.1.split_once(']')).map(|(chosen, _)| chosen);
    let (grade, is) = match (text, chosen) {
        (None, _) => (Grade::Good, "transparent huge pages are not available".to_owned()),
        (_, Some("madvise" | "never")) => {
            (Grade::Good, format!("transparent huge pages: {}", chosen.unwrap_or_default()))
        }
        (_, Some("always")) => (Grade::Better, "transparent huge pages: always".to_owned()),
        (Some(text), _) => (Grade::Unknown, format!("transparent huge pages: {}", shown(text))),
    };
    let command = format!("echo madvise > {HUGE_PAGES}");
    Finding {
        topic: "huge pages",
        grade,
        is,
        should: "madvise".to_owned(),
        why: "with always, small stacks and buffers may take 2 MB of memory each",
        remedy: if grade == Grade::Better { Remedy::Command(command) } else { Remedy::None },
    }
}

fn clock_source(facts: &Facts) -> Finding {
    let source = facts.files.get(CLOCK_SOURCE).map(|text| text.trim());
    let (grade, is) = match source {
        None | Some("") => (Grade::Unknown, "the source of the clock is unknown".to_owned()),
        Some(source) => {
            let grade = if FAST_CLOCKS.contains(&source) { Grade::Good } else { Grade::Better };
            (grade, format!("the source of the clock is {}", shown(source)))
        }
    };
    let command = "see `dmesg | grep clocksource`: the hardware or the hypervisor decides".to_owned();
    Finding {
        topic: "clock",
        grade,
        is,
        should: FAST_CLOCKS[..2].join(" or "),
        why: "a slow clock takes a system call for each of the many times that are logged",
        remedy: if grade == Grade::Better { Remedy::Command(command) } else { Remedy::None },
    }
}

fn synchronization(facts: &Facts) -> Finding {
    let is_kept = FILES[FILES.len() - 4..].iter().any(|file| facts.files.contains_key(*file));
    let is = if is_kept { "a service keeps the time" } else { "no service that keeps the time was found" };
    let command = "apt install systemd-timesyncd (or chrony); in a container, on its host".to_owned();
    Finding {
        topic: "clock",
        grade: if is_kept { Grade::Good } else { Grade::Better },
        is: is.to_owned(),
        should: "systemd-timesyncd, chrony or ntpd".to_owned(),
        why: "the age of a response follows from its Date: a wrong clock makes it too old or too young",
        remedy: if is_kept { Remedy::None } else { Remedy::Command(command) },
    }
}
