//! Tables of facts and their findings: usual machines, files that are missing, and files of any bytes.

use super::*;

/// The facts of a well-tuned machine.
fn tuned() -> Facts {
    let files = [
        ("net/core/somaxconn", "4096\n"),
        ("net/ipv4/tcp_max_syn_backlog", "4096\n"),
        ("net/ipv4/ip_local_port_range", "10240\t65535\n"),
        ("net/ipv4/tcp_tw_reuse", "2\n"),
        ("net/ipv4/tcp_max_tw_buckets", "262144\n"),
        ("net/ipv4/tcp_congestion_control", "bbr\n"),
        ("net/ipv4/tcp_slow_start_after_idle", "0\n"),
        ("net/core/rmem_max", "7500000\n"),
        ("net/core/wmem_max", "7500000\n"),
        ("net/netfilter/nf_conntrack_max", "262144\n"),
        ("net/netfilter/nf_conntrack_count", "120\n"),
        ("fs/file-max", "9223372036854775807\n"),
        ("fs/nr_open", "1048576\n"),
        ("vm/overcommit_memory", "0\n"),
    ];
    let mut facts = Facts { workdir: "/run/lacquer".to_owned(), ..Facts::default() };
    facts.files.extend(files.map(|(name, text)| (format!("/proc/sys/{name}"), text.to_owned())));
    for (name, text) in [
        ("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        ("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
        ("/proc/meminfo", "MemTotal:        4096000 kB\n"),
        ("/proc/self/mounts", "/dev/vda / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n"),
        ("/run/chrony/chronyd.pid", "12\n"),
    ] {
        facts.files.insert(name.to_owned(), text.to_owned());
    }
    facts.limits =
        Some("Max open files            131072               131072               files\n".to_owned());
    facts
}

fn with(path: &str, text: &str) -> Facts {
    let mut facts = tuned();
    facts.files.insert(path.to_owned(), text.to_owned());
    facts
}

/// Returns the findings that are not good.
fn faults(facts: &Facts) -> Vec<Finding> {
    examine(facts).into_iter().filter(|finding| finding.grade != Grade::Good).collect()
}

#[test]
fn a_tuned_machine_has_no_faults() {
    assert_eq!(faults(&tuned()), []);
    assert!(FILES.iter().all(|file| file.starts_with('/')));
    for path in tuned().files.keys() {
        assert!(FILES.contains(&path.as_str()), "{path} is never read");
    }
}

#[test]
fn each_setting_has_its_grade_and_remedy() {
    use Grade::{Bad, Better, Unknown};
    for (path, text, grade, remedy) in [
        ("/proc/sys/net/core/somaxconn", "128", Bad, "net.core.somaxconn = 4096"),
        ("/proc/sys/net/ipv4/tcp_max_syn_backlog", "256", Better, "net.ipv4.tcp_max_syn_backlog = 4096"),
        (
            "/proc/sys/net/ipv4/ip_local_port_range",
            "32768 40000",
            Better,
            "net.ipv4.ip_local_port_range = 10240 65535",
        ),
        ("/proc/sys/net/ipv4/tcp_tw_reuse", "0", Better, "net.ipv4.tcp_tw_reuse = 1"),
        ("/proc/sys/net/ipv4/tcp_tw_recycle", "1", Bad, "net.ipv4.tcp_tw_recycle = 0"),
        ("/proc/sys/net/ipv4/tcp_max_tw_buckets", "100", Better, "net.ipv4.tcp_max_tw_buckets = 65536"),
        (
            "/proc/sys/net/ipv4/tcp_congestion_control",
            "reno",
            Better,
            "net.ipv4.tcp_congestion_control = cubic",
        ),
        (
            "/proc/sys/net/ipv4/tcp_slow_start_after_idle",
            "1",
            Better,
            "net.ipv4.tcp_slow_start_after_idle = 0",
        ),
        ("/proc/sys/net/core/rmem_max", "212992", Better, "net.core.rmem_max = 7500000"),
        ("/proc/sys/net/core/wmem_max", "212992", Better, "net.core.wmem_max = 7500000"),
        (
            "/proc/sys/net/netfilter/nf_conntrack_max",
            "65536",
            Better,
            "net.netfilter.nf_conntrack_max = 262144",
        ),
        (
            "/proc/sys/net/netfilter/nf_conntrack_count",
            "250000",
            Bad,
            "net.netfilter.nf_conntrack_max = 524288",
        ),
        ("/proc/sys/fs/file-max", "1000", Bad, "fs.file-max = 1048576"),
        ("/proc/sys/fs/nr_open", "1024", Bad, "fs.nr_open = 1048576"),
        ("/proc/sys/vm/overcommit_memory", "2", Bad, "vm.overcommit_memory = 0"),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never", Better, ""),
        ("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet", Better, ""),
        ("/proc/self/mounts", "/dev/vda / ext4 rw 0 0\n", Better, ""),
        ("/proc/self/mounts", "", Unknown, ""),
    ] {
        let found = faults(&with(path, text));
        assert_eq!(found.len(), 1, "{path} {text}: {found:?}");
        assert_eq!(found[0].grade, grade, "{path} {text}");
        assert!(sysctl_file(&found).contains(remedy), "{path} {text}: {}", sysctl_file(&found));
        assert_eq!(found[0].remedy == Remedy::None, grade == Unknown, "{path} {text}");
    }
}

#[test]
fn missing_files_are_unknown_and_never_mended() {
    let found = examine(&Facts::default());
    assert!(found.iter().all(|finding| finding.grade <= Grade::Better), "{found:?}");
    assert!(!sysctl_file(&found).contains(" = "), "{}", sysctl_file(&found));
    for path in tuned().files.keys() {
        let mut facts = tuned();
        facts.files.remove(path);
        let worst = faults(&facts).into_iter().map(|finding| finding.grade).max();
        assert!(worst <= Some(Grade::Better), "{path}: {worst:?}");
    }
}

#[test]
fn garbage_is_unknown_and_shown_without_control_characters() {
    let long = "9".repeat(100_000);
    for text in [
        "",
        "\0",
        "-1",
        "x y z",
        "\x1b[31mred\x07",
        "[",
        "][",
        "99999999999999999999999999",
        &long,
        "1 2 3\n4",
    ] {
        for path in FILES {
            let found = examine(&with(path, text));
            let mended = found.iter().filter(|finding| matches!(finding.remedy, Remedy::Sysctl(..)));
            // Other words than known ones are names of other methods.
            let is_word = path.ends_with("congestion_control");
            assert!(is_word || mended.count() == 0, "{path}: {text:?}");
            let report = super::text(&found, false);
            let is_shown = |c: char| c == '\n' || !c.is_control();
            assert!(report.chars().all(is_shown) && report.len() < 20_000, "{path}: {text:?}");
            assert!(sysctl_file(&found).lines().all(|line| line.len() < 300), "{path}");
        }
    }
}

#[test]
fn the_service_is_examined() {
    let error = || Err("Connection refused".to_owned());
    let base = tuned();
    let secret = |mode| vec![Secret { path: "/s".to_owned(), mode }];
    let store = |free, exists| vec![Store { path: "/d".to_owned(), free, exists, wanted: 100 }];
    let origin = |reached, date| vec![Origin { name: "a:80".to_owned(), reached, date }];
    let limits = |text: &str| Some(text.to_owned());
    for (facts, expected) in [
        (Facts { secrets: secret(Ok(0o100_640)), ..base.clone() }, None),
        (Facts { secrets: secret(Ok(0o100_644)), ..base.clone() }, Some("every user can use /s (644)")),
        (Facts { secrets: secret(Ok(0o100_660)), ..base.clone() }, Some("a group can change /s (660)")),
        (Facts { secrets: secret(Err("gone".to_owned())), ..base.clone() }, Some("/s: gone")),
        (Facts { stores: store(Ok(None), true), ..base.clone() }, None),
        (Facts { stores: store(Ok(Some(1)), true), ..base.clone() }, None),
        (
            Facts { stores: store(Ok(Some(1)), false), ..base.clone() },
            Some("/d: 0 MB are free, 0 MB are wanted"),
        ),
        (Facts { stores: store(error().map(Some), false), ..base.clone() }, Some("/d: Connection refused")),
        (Facts { origins: origin(Ok(3), Some((100.0, 101.0))), ..base.clone() }, None),
        (
            Facts { origins: origin(Ok(3), Some((100.0, 300.0))), ..base.clone() },
            Some("the clock of a:80 differs by 200 s"),
        ),
        (Facts { origins: origin(Ok(3000), None), ..base.clone() }, Some("a:80 took 3000 ms")),
        (Facts { origins: origin(error(), None), ..base.clone() }, Some("a:80: Connection refused")),
        (Facts { storage_memory: 1 << 30, ..base.clone() }, None),
        (
            Facts { storage_memory: u64::MAX, ..base.clone() },
            Some("storages of 17592186044415 MB on a machine with 4000 MB"),
        ),
        (
            Facts { limits: limits("Max open files 1024"), ..base.clone() },
            Some("a program that is started here may have 1024 descriptors"),
        ),
    ] {
        let found = faults(&facts);
        assert_eq!(found.first().map(|finding| finding.is.as_str()), expected);
        assert!(found.len() <= 1, "{found:?}");
    }
}

#[test]
fn reports_are_complete() {
    let found = examine(&with("/proc/sys/net/core/somaxconn", "128"));
    let report = super::text(&found, false);
    for part in [
        "bad     backlog      net.core.somaxconn = 128\n",
        "should be at least 1024\n",
        "-> sysctl -w net.core.somaxconn=4096\n",
        ", 1 are bad.\n",
        "--fix",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    assert!(report.lines().all(|line| line.chars().count() <= 100), "{report}");
    assert!(super::text(&found, true).contains("\x1b[31mbad"));
    let parsed: serde_json::Value = serde_json::from_str(&json(&found)).expect("it is JSON");
    let first = &parsed[0];
    assert_eq!((first["grade"].as_str(), first["sysctl"]["value"].as_str()), (Some("bad"), Some("4096")));
}
