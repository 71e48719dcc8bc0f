//! Lists of cipher suites and groups with the names and the syntax of OpenSSL (ciphers(1)).

use rustls::SupportedCipherSuite;
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::{cipher_suite as suite, kx_group as group};

/// A suite of TLS 1.2: OpenSSL's name, the suite, and the words that select it.
struct Known {
    name: &'static str,
    suite: SupportedCipherSuite,
    words: &'static [&'static str],
}

/// Words that select all suites of TLS 1.2.
const ALL: &[&str] =
    &["ALL", "DEFAULT", "HIGH", "ECDHE", "EECDH", "kECDHE", "kEECDH", "TLSv1.2", "FIPS", "AEAD"];

/// The suites of TLS 1.2 in the order of preference.
fn known() -> [Known; 6] {
    let known = |name, suite, words| Known { name, suite, words };
    [
        known(
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            &["ECDSA", "aECDSA", "AES", "AESGCM", "AES256", "SHA384"],
        ),
        known(
            "ECDHE-RSA-AES256-GCM-SHA384",
            suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            &["aRSA", "AES", "AESGCM", "AES256", "SHA384"],
        ),
        known(
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            &["ECDSA", "aECDSA", "CHACHA20", "SHA256"],
        ),
        known(
            "ECDHE-RSA-CHACHA20-POLY1305",
            suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
            &["aRSA", "CHACHA20", "SHA256"],
        ),
        known(
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            &["ECDSA", "aECDSA", "AES", "AESGCM", "AES128", "SHA256"],
        ),
        known(
            "ECDHE-RSA-AES128-GCM-SHA256",
            suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            &["aRSA", "AES", "AESGCM", "AES128", "SHA256"],
        ),
    ]
}

/// Words for suites that OpenSSL has and we do not, and parts of their names. A list may contain them: they select
/// nothing.
const FOREIGN: &[&str] = &[
    "3DES",
    "ADH",
    "AECDH",
    "AES",
    "AES128",
    "AES256",
    "AESCCM",
    "AESCCM8",
    "ARIA",
    "ARIA128",
    "ARIA256",
    "ARIAGCM",
    "CAMELLIA",
    "CAMELLIA128",
    "CAMELLIA256",
    "CBC",
    "CBC3",
    "CCM",
    "CCM8",
    "CHACHA20",
    "COMPLEMENTOFALL",
    "COMPLEMENTOFDEFAULT",
    "DES",
    "DH",
    "DHE",
    "DSS",
    "ECDH",
    "ECDHE",
    "ECDSA",
    "EDH",
    "EXP",
    "EXPORT",
    "EXPORT40",
    "EXPORT56",
    "GCM",
    "GOST",
    "GOST94",
    "GOST89MAC",
    "IDEA",
    "LOW",
    "MD5",
    "MEDIUM",
    "NULL",
    "POLY1305",
    "PSK",
    "RC2",
    "RC4",
    "RSA",
    "SEED",
    "SHA",
    "SHA1",
    "SHA256",
    "SHA384",
    "SRP",
    "SSLv3",
    "TLSv1",
    "TLSv1.0",
    "aDH",
    "aDSS",
    "aGOST",
    "aNULL",
    "aPSK",
    "aSRP",
    "eNULL",
    "kDH",
    "kDHE",
    "kDHEPSK",
    "kECDHEPSK",
    "kEDH",
    "kGOST",
    "kPSK",
    "kRSA",
    "kRSAPSK",
    "kSRP",
];

fn is_foreign(word: &str) -> bool {
    word.split('-').all(|part| FOREIGN.contains(&part))
}

/// The effect of an element of a list on the suites that it selects.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    Add,
    Delete,
    Forbid,
    MoveToEnd,
}

/// A list under evaluation.
#[derive(Default)]
struct Evaluation {
    chosen: Vec<usize>,
    forbidden: Vec<usize>,
}

impl Evaluation {
    fn apply(&mut self, change: Change, selected: &[usize]) {
        let is_chosen: Vec<usize> = selected.iter().copied().filter(|at| self.chosen.contains(at)).collect();
        if change != Change::Add {
            self.chosen.retain(|at| !selected.contains(at));
        }
        match change {
            Change::Add => {
                for at in selected {
                    if !self.chosen.contains(at) && !self.forbidden.contains(at) {
                        self.chosen.push(*at);
                    }
                }
            }
            Change::MoveToEnd => self.chosen.extend(is_chosen),
            Change::Forbid => self.forbidden.extend(selected),
            Change::Delete => {}
        }
    }
}

/// Returns the positions of the suites that have all of the words, which `+` joins. Fails for an unknown word.
fn select(words: &str, all: &[Known]) -> Result<Vec<usize>, String> {
    let mut selected: Vec<usize> = (0..all.len()).collect();
    for word in words.split('+') {
        let has = |known: &Known| {
            ALL.contains(&word)
                || known.name == word
                || known.words.contains(&word)
                || iana(&known.suite) == word
        };
        if !all.iter().any(has) && !is_foreign(word) {
            return Err(format!("{word:?} is not the name of a cipher"));
        }
        selected.retain(|at| has(&all[*at]));
    }
    Ok(selected)
}

fn iana(suite: &SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    name.replacen("TLS13_", "TLS_", 1)
}

/// Returns the suites of TLS 1.2 for a list, in its order. Suites that OpenSSL has and we do not are ignored. Fails if
/// none is left, or for a word that OpenSSL does not have either.
pub fn tls12(list: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    let fault = |why: &str| format!("Invalid cipher list: {list}: {why}");
    let all = known();
    let mut evaluation = Evaluation::default();
    for element in list.split([':', ',', ' ', ';']).filter(|element| !element.is_empty()) {
        if element == "@STRENGTH" || element.starts_with("@SECLEVEL=") {
            continue;
        }
        let (change, words) = match element.as_bytes()[0] {
            b'!' => (Change::Forbid, &element[1..]),
            b'-' => (Change::Delete, &element[1..]),
            b'+' => (Change::MoveToEnd, &element[1..]),
            _ => (Change::Add, element),
        };
        evaluation.apply(change, &select(words, &all).map_err(|why| fault(&why))?);
    }
    if evaluation.chosen.is_empty() {
        return Err(fault(
            "it selects none of the supported ciphers, which are those with ECDHE and AES-GCM or ChaCha20",
        ));
    }
    Ok(evaluation.chosen.into_iter().map(|at| all[at].suite).collect())
}

/// Returns the suites of TLS 1.3 for a list, in its order.
pub fn tls13(list: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    let fault = |why: String| format!("Invalid ciphersuites: {list}: {why}");
    let all = [
        suite::TLS13_AES_256_GCM_SHA384,
        suite::TLS13_AES_128_GCM_SHA256,
        suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    let mut chosen = Vec::new();
    for name in list.split([':', ',', ' ']).filter(|name| !name.is_empty()) {
        match all.iter().find(|suite| iana(suite) == name) {
            Some(suite) if !chosen.contains(suite) => chosen.push(*suite),
            Some(_) => {}
            None if matches!(name, "TLS_AES_128_CCM_SHA256" | "TLS_AES_128_CCM_8_SHA256") => {}
            None => return Err(fault(format!("{name:?} is not the name of a suite of TLS 1.3"))),
        }
    }
    if chosen.is_empty() {
        return Err(fault("it names none of the supported suites".to_owned()));
    }
    Ok(chosen)
}

/// Returns the groups of the key exchange for a list, in its order.
pub fn groups(list: &str) -> Result<Vec<&'static dyn SupportedKxGroup>, String> {
    let mut chosen: Vec<&'static dyn SupportedKxGroup> = Vec::new();
    for name in list.split([':', ',', ' ']).filter(|name| !name.is_empty()) {
        let group = match name.trim_start_matches('?').to_ascii_lowercase().as_str() {
            "x25519" => group::X25519,
            "p-256" | "prime256v1" | "secp256r1" => group::SECP256R1,
            "p-384" | "secp384r1" => group::SECP384R1,
            "x25519mlkem768" => group::X25519MLKEM768,
            "secp256r1mlkem768" => group::SECP256R1MLKEM768,
            // Known to OpenSSL.
            "p-521" | "secp521r1" | "x448" | "secp384r1mlkem1024" => continue,
            _ => return Err(format!("Failed to set groups: '{list}': {name:?} is not the name of a group")),
        };
        if chosen.iter().all(|other| other.name() != group.name()) {
            chosen.push(group);
        }
    }
    if chosen.is_empty() {
        return Err(format!("Failed to set groups: '{list}': it names none of the supported groups"));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<String> {
        tls12(list).unwrap().iter().map(iana).map(|name| name.replace("TLS_ECDHE_", "")).collect()
    }

    #[test]
    fn lists_select_and_order() {
        assert_eq!(names("HIGH").len(), 6);
        assert_eq!(
            names("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384"),
            ["RSA_WITH_AES_128_GCM_SHA256", "RSA_WITH_AES_256_GCM_SHA384"]
        );
        assert_eq!(names("EECDH+AESGCM:!aRSA").len(), 2);
        assert_eq!(names("HIGH:!aNULL:!MD5:-CHACHA20").len(), 4);
        assert_eq!(names("ALL:+AES256").last().unwrap(), "RSA_WITH_AES_256_GCM_SHA384");
        assert_eq!(names("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256").len(), 1);
        // Mozilla's list for servers of 2026, with a suite that exists in OpenSSL only.
        let mozilla = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256";
        assert_eq!(names(mozilla).len(), 2);
    }

    #[test]
    fn bad_lists_are_refused() {
        for (list, why) in [
            ("()#/", "is not the name of a cipher"),
            ("HIGH:ECDHE-RSA-AES129-GCM-SHA256", "is not the name of a cipher"),
            ("DHE-RSA-AES128-GCM-SHA256", "it selects none"),
            ("", "it selects none"),
            ("!HIGH:HIGH", "it selects none"),
        ] {
            let fault = tls12(list).unwrap_err();
            assert!(fault.starts_with("Invalid cipher list") && fault.contains(why), "{list}: {fault}");
        }
        assert!(tls13("$#$&^^&").unwrap_err().starts_with("Invalid ciphersuites"));
        assert!(tls13("TLS_AES_128_CCM_SHA256").is_err());
        assert_eq!(tls13("TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256").unwrap().len(), 2);
        assert_eq!(groups("X25519:P-256:?X448").unwrap().len(), 2);
        assert!(groups("X25519:P-257").is_err());
    }
}
