use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::{AllowList, Destination, DestinationError, Host, HostEntryProblem, Special, UrlError, special};

fn list(entries: &[&str]) -> AllowList {
    let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
    let (list, errors) = AllowList::parse(&entries);
    assert_eq!(errors, []);
    list
}

fn problem(entry: &str) -> HostEntryProblem {
    let (list, mut errors) = AllowList::parse(&[entry.to_owned()]);
    assert_eq!((list, errors.len()), (AllowList::default(), 1), "{entry}");
    errors.remove(0).problem
}

fn url(text: &str) -> Destination {
    Destination::parse(text).unwrap()
}

fn permits(entries: &[&str], text: &str) -> bool {
    list(entries).permits_host(&url(text), "team-a").is_ok()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_host_permits_itself_in_any_spelling() {
    for same in ["http://ci.example.org/a", "https://CI.Example.ORG:8443", "http://ci.example.org./"] {
        assert!(permits(&["ci.example.org"], same), "{same}");
        assert!(permits(&["CI.example.org."], same), "{same}");
    }
    for other in [
        "http://example.org",
        "http://a.ci.example.org",
        "http://ci.example.org.evil.net",
        "http://xci.example.org",
    ] {
        assert!(!permits(&["ci.example.org"], other), "{other}");
    }
}

#[test]
fn international_names_are_compared_as_dns_has_them() {
    assert!(permits(&["bücher.example"], "http://xn--bcher-kva.example/"));
    assert!(permits(&["*.xn--bcher-kva.example"], "http://ci.BÜCHER.example/"));
}

#[test]
fn a_suffix_permits_what_is_below_it() {
    for below in ["http://hook.svc/", "http://hook.team.svc/", "http://hook.team.svc.:8080/"] {
        assert!(permits(&["*.svc"], below), "{below}");
    }
    for not in ["http://svc/", "http://hooksvc/", "http://hook.svc.evil.net/", "http://hook.svcs/"] {
        assert!(!permits(&["*.svc"], not), "{not}");
    }
}

#[test]
fn a_port_permits_only_that_port() {
    assert!(permits(&["ci.example.org:443"], "https://ci.example.org/"));
    assert!(!permits(&["ci.example.org:443"], "http://ci.example.org/"));
    assert!(permits(&["*.svc:8080"], "http://a.svc:8080/"));
    assert!(!permits(&["*.svc:8080"], "http://a.svc/"));
    assert!(permits(&["10.0.0.1:8080"], "http://10.0.0.1:8080/"));
    assert!(!permits(&["10.0.0.1:8080"], "http://10.0.0.1:8081/"));
    assert!(permits(&["[::1]:8080"], "http://[::1]:8080/"));
    assert!(!permits(&["[::1]:8080"], "http://[::1]/"));
}

#[test]
fn an_address_needs_an_address_entry_and_a_name_a_name_entry() {
    assert!(permits(&["10.0.0.0/8"], "http://10.1.2.3/"));
    assert!(permits(&["::1"], "http://[::1]/"));
    assert!(permits(&["127.0.0.1"], "http://[::ffff:127.0.0.1]/"));
    assert!(permits(&["::ffff:10.0.0.0/104"], "http://10.1.2.3/"));
    assert!(!permits(&["*.svc", "ci.example.org"], "http://10.1.2.3/"));
    assert!(!permits(&["0.0.0.0/0", "::/0"], "http://ci.example.org/"));
    assert!(!permits(&[], "http://ci.example.org/"));
}

#[test]
fn unusual_spellings_of_an_address_are_that_address() {
    for odd in [
        "0x7f.1",
        "2130706433",
        "127.1",
        "0177.0.0.1",
        "0x7f000001",
        "%31%32%37.0.0.1",
        "127。0。0。1",
        "127.0.0.1.",
    ] {
        let destination = url(&format!("http://{odd}/"));
        assert_eq!(destination.host(), Host::Address(Ipv4Addr::LOCALHOST.into()), "{odd}");
        assert!(list(&["*.svc", "localhost"]).permits_host(&destination, "team-a").is_err(), "{odd}");
        assert!(list(&["127.0.0.1"]).permits_host(&destination, "team-a").is_ok(), "{odd}");
    }
    assert_eq!(problem("0x7f.1"), HostEntryProblem::Spelling { address: "127.0.0.1".into() });
}

#[test]
fn special_addresses_are_recognised_in_every_disguise() {
    use Special::{Broadcast, LinkLocal, Loopback, Metadata, Multicast, Unspecified};
    for (text, expected) in [
        ("0.0.0.0", Unspecified),
        ("0.1.2.3", Unspecified),
        ("::", Unspecified),
        ("127.0.0.1", Loopback),
        ("127.255.0.9", Loopback),
        ("::1", Loopback),
        ("::ffff:127.0.0.1", Loopback),
        ("::ffff:0:127.0.0.1", Loopback),
        ("::127.0.0.1", Loopback),
        ("64:ff9b::127.0.0.1", Loopback),
        ("64:ff9b:1::127.0.0.1", Loopback),
        ("2002:7f00:1::", Loopback),
        ("2001::80ff:fffe", Loopback),
        ("169.254.1.1", LinkLocal),
        ("fe80::1", LinkLocal),
        ("febf::1", LinkLocal),
        ("169.254.169.254", Metadata),
        ("::ffff:169.254.169.254", Metadata),
        ("64:ff9b::169.254.169.254", Metadata),
        ("2002:a9fe:a9fe::1", Metadata),
        ("100.100.100.200", Metadata),
        ("168.63.129.16", Metadata),
        ("fd00:ec2::254", Metadata),
        ("fd00:ec2::23", Metadata),
        ("fd20:ce::254", Metadata),
        ("224.0.0.1", Multicast),
        ("ff02::1", Multicast),
        ("255.255.255.255", Broadcast),
    ] {
        assert_eq!(special(ip(text)), Some(expected), "{text}");
    }
    for ordinary in [
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "8.8.8.8",
        "fd00::1",
        "2001:db8::1",
        "64:ff9b::8.8.8.8",
    ] {
        assert_eq!(special(ip(ordinary)), None, "{ordinary}");
    }
}

#[test]
fn a_permitted_name_may_lead_to_a_special_address_only_if_it_is_listed() {
    let hook = url("http://hook.svc:8080/");
    assert_eq!(list(&["*.svc"]).permits_address(&hook, ip("10.0.0.1")), Ok(()));
    let refusal = list(&["*.svc"]).permits_address(&hook, ip("127.0.0.1")).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "the webhook host \"hook.svc\" resolves to 127.0.0.1, a loopback address, which no name may lead to; only the address \
         itself in spec.tenants.webhookHosts of CoppiceConfig/coppice would permit it"
    );
    assert!(list(&["*.svc", "127.0.0.0/8"]).permits_address(&hook, ip("127.0.0.1")).is_ok());
    assert!(list(&["*.svc", "127.0.0.1:8080"]).permits_address(&hook, ip("::ffff:127.0.0.1")).is_ok());
    assert!(list(&["*.svc", "127.0.0.1:81"]).permits_address(&hook, ip("127.0.0.1")).is_err());
    // An IPv6 address that carries it is another address: connecting to it asks a gateway.
    assert!(list(&["*.svc", "127.0.0.1"]).permits_address(&hook, ip("64:ff9b::127.0.0.1")).is_err());
}

#[test]
fn an_address_in_the_url_is_not_exchanged_for_another() {
    let refusal = list(&["10.0.0.1"]).permits_address(&url("http://10.0.0.1/"), ip("10.0.0.2")).unwrap_err();
    assert!(matches!(refusal, DestinationError::AddressNotListed { .. }), "{refusal}");
}

#[test]
fn refusals_name_the_entry_that_would_permit() {
    let nothing = AllowList::default();
    for (text, entry) in [
        ("https://ci.example.org/hook", "ci.example.org:443"),
        ("http://10.0.0.1:81/", "10.0.0.1:81"),
        ("http://[fd00::1]/", "[fd00::1]:80"),
    ] {
        let destination = url(text);
        let refusal = nothing.permits_host(&destination, "team-a").unwrap_err().to_string();
        assert!(refusal.contains(&format!("{entry:?} in spec.tenants.webhookHosts")), "{refusal}");
        assert!(list(&[entry]).permits_host(&destination, "team-a").is_ok());
    }
}

#[test]
fn bad_entries_say_what_to_write_and_good_ones_stay() {
    let (kept, errors) = AllowList::parse(&["*".into(), "*.svc".into(), "https://ci.example.org/x".into()]);
    assert_eq!(kept, list(&["*.svc"]));
    assert_eq!(
        errors[1].to_string(),
        "the entry \"https://ci.example.org/x\" of webhookHosts is a URL; write only the host and the port: \"ci.example.org:443\""
    );
    for (entry, expected) in [
        ("", HostEntryProblem::Empty),
        ("  ", HostEntryProblem::Empty),
        ("*", HostEntryProblem::Wildcard),
        ("ci.*.org", HostEntryProblem::Wildcard),
        ("*.*.svc", HostEntryProblem::Wildcard),
        ("*ci.svc", HostEntryProblem::Wildcard),
        ("*.", HostEntryProblem::NotAHost),
        ("hook-{namespace}.svc", HostEntryProblem::Placeholder),
        ("{name}.svc", HostEntryProblem::Placeholder),
        ("*.{namespace}..svc", HostEntryProblem::NotAHost),
        ("{namespace}.10", HostEntryProblem::NotAHost),
        ("a..b", HostEntryProblem::NotAHost),
        ("a b", HostEntryProblem::NotAHost),
        ("user@ci.example.org", HostEntryProblem::NotAHost),
        ("[::1", HostEntryProblem::NotAHost),
        ("1:2:3", HostEntryProblem::NotAHost),
        ("ci.example.org:", HostEntryProblem::Port),
        ("ci.example.org:0", HostEntryProblem::Port),
        ("ci.example.org:+80", HostEntryProblem::Port),
        ("ci.example.org:65536", HostEntryProblem::Port),
        ("ci.example.org/x", HostEntryProblem::Path { write: "ci.example.org".into() }),
        ("10.0.0.0/8:80", HostEntryProblem::Prefix),
        ("10.0.0.0/33", HostEntryProblem::Prefix),
        ("10.1.2.3/8", HostEntryProblem::HostBits { network: "10.0.0.0/8".into() }),
    ] {
        assert_eq!(problem(entry), expected, "{entry}");
    }
}

#[test]
fn the_placeholder_stands_for_the_namespace_of_the_manager() {
    let permits =
        |entry: &str, text: &str, namespace: &str| list(&[entry]).permits_host(&url(text), namespace).is_ok();
    for entry in ["*.{namespace}.svc", "*.{Namespace}.SVC.", "*.{namespace}.svc:80", "hook.{namespace}.svc"] {
        assert!(permits(entry, "http://hook.team-a.svc/", "team-a"), "{entry}");
        assert!(!permits(entry, "http://hook.team-a.svc/", "team-b"), "{entry}");
        assert!(!permits(entry, "http://hook.xteam-a.svc/", "team-a"), "{entry}");
        assert!(!permits(entry, "http://team-a.svc/", "team-a"), "{entry}");
        assert!(!permits(entry, "http://hook.team-a.svc.evil.net/", "team-a"), "{entry}");
    }
    assert!(permits("*.{namespace}.svc", "http://a.hook.team-a.svc/", "team-a"));
    assert!(!permits("hook.{namespace}.svc", "http://a.hook.team-a.svc/", "team-a"));
    assert!(permits("{namespace}.example.org", "https://team-a.example.org/", "team-a"));
    // Braces are no letters of a host, so no URL can name the placeholder itself.
    assert!(Destination::parse("http://hook.{namespace}.svc/").is_err());
}

#[test]
fn urls_that_cannot_be_sent_to_are_refused() {
    type Case = (&'static str, fn(&UrlError) -> bool);
    let cases: [Case; 9] = [
        ("not a url", |error| matches!(error, UrlError::Syntax(_))),
        ("http://", |error| matches!(error, UrlError::Syntax(_))),
        ("ftp://ci.example.org/", |error| matches!(error, UrlError::Scheme { .. })),
        ("http://user@ci.example.org/", |error| *error == UrlError::Credentials),
        ("http://:secret@ci.example.org/", |error| *error == UrlError::Credentials),
        ("http://ci.example.org/#x", |error| *error == UrlError::Fragment),
        ("http://ci.example.org:0/", |error| *error == UrlError::Port),
        ("http://a..svc/", |error| matches!(error, UrlError::Host { .. })),
        ("http://*.svc/", |error| matches!(error, UrlError::Host { .. })),
    ];
    for (text, expected) in cases {
        let error = Destination::parse(text).unwrap_err();
        assert!(expected(&error), "{text}: {error}");
    }
    let long = format!("http://ci.example.org/{}", "a".repeat(2048));
    assert_eq!(Destination::parse(&long), Err(UrlError::TooLong { length: 2070 }));
}

fn any_special() -> impl Strategy<Value = IpAddr> {
    let v4 = prop_oneof![
        Just([169, 254, 169, 254]),
        Just([100, 100, 100, 200]),
        any::<[u8; 3]>().prop_map(|[a, b, c]| [127, a, b, c]),
        any::<[u8; 3]>().prop_map(|[a, b, c]| [0, a, b, c]),
        any::<[u8; 2]>().prop_map(|[a, b]| [169, 254, a, b]),
    ]
    .prop_map(Ipv4Addr::from);
    let disguised = (v4, 0..5).prop_map(|(v4, disguise)| {
        let [a, b, c, d] = v4.octets();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        match disguise {
            0 => IpAddr::V4(v4),
            1 => v4.to_ipv6_mapped().into(),
            2 => Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low).into(),
            3 => Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1).into(),
            _ => Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low).into(),
        }
    });
    let v6 = prop_oneof![
        Just(Ipv6Addr::LOCALHOST),
        any::<u64>().prop_map(|low| Ipv6Addr::from((0xfe80_u128 << 112) | u128::from(low))),
        any::<u32>().prop_map(|low| Ipv6Addr::from((0xfd00_0ec2_u128 << 96) | u128::from(low))),
    ];
    prop_oneof![3 => disguised, 1 => v6.prop_map(IpAddr::V6)]
}

#[test]
fn what_the_platform_itself_writes_is_permitted_but_no_special_address() {
    let (listed, _) = AllowList::parse(&["127.0.0.1:8080".to_owned()]);
    let permitted = |text: &str| {
        let destination = url(text);
        listed.clone().permitting(&destination).permits_host(&destination, "team-a").is_ok()
    };
    for good in ["https://ci.example.org/hook", "http://10.1.2.3:8080/", "http://127.0.0.1:8080/"] {
        assert!(permitted(good), "{good}");
    }
    for bad in ["http://127.0.0.1:9090/", "http://169.254.169.254/latest", "http://[::1]/", "http://0.0.0.0/"]
    {
        assert!(!permitted(bad), "{bad}");
    }
    let name = url("http://ci.example.org/");
    let list = AllowList::default().permitting(&name);
    assert!(list.permits_address(&name, "10.1.2.3".parse().unwrap()).is_ok());
    assert!(
        list.permits_address(&name, "169.254.169.254".parse().unwrap()).is_err(),
        "where it leads is no say of the platform"
    );
    assert!(
        list.permits_host(&url("http://ci.example.org:81/"), "team-a").is_err(),
        "another port is another receiver"
    );
}

proptest! {
    #[test]
    fn no_name_entry_permits_a_special_address(
        entries in prop::collection::vec("(\\*\\.)?[a-z]{1,6}(\\.[a-z]{1,6}){0,2}(:[1-9][0-9]{0,3})?", 0..6),
        host in "[a-z]{1,6}(\\.[a-z]{1,6}){0,3}",
        address in any_special(),
    ) {
        let (list, errors) = AllowList::parse(&entries);
        prop_assert_eq!(errors, vec![]);
        let name = url(&format!("http://{host}/"));
        prop_assert!(list.permits_address(&name, address).is_err());
        let literal = match address {
            IpAddr::V4(address) => url(&format!("http://{address}/")),
            IpAddr::V6(address) => url(&format!("http://[{address}]/")),
        };
        prop_assert!(list.permits_host(&literal, "team-a").is_err());
        prop_assert!(list.permits_address(&literal, address).is_err());
    }

    #[test]
    fn a_listed_address_is_permitted_and_no_other(address in any::<IpAddr>(), other in any::<IpAddr>()) {
        let (list, errors) = AllowList::parse(&[address.to_string()]);
        prop_assert_eq!(errors, vec![]);
        let name = url("http://hook.svc/");
        prop_assert!(list.permits_address(&name, address).is_ok());
        let same = address.to_canonical() == other.to_canonical();
        prop_assert_eq!(list.permits_address(&name, other).is_ok(), same || special(other).is_none());
    }

    #[test]
    fn reading_never_panics(entry in any::<String>(), text in any::<String>()) {
        let (list, _) = AllowList::parse(&[entry]);
        for text in [text.clone(), format!("http://{text}"), format!("https://{text}/")] {
            if let Ok(destination) = Destination::parse(&text) {
                let _ = list.permits_host(&destination, "team-a");
                let _ = list.permits_address(&destination, Ipv4Addr::LOCALHOST.into());
            }
        }
    }

    #[test]
    fn what_looks_like_an_entry_never_panics(entry in "(\\*\\.|\\[|https?://)?[a-z0-9.:/*@%-]{0,20}(\\]|:|/)?[0-9]{0,6}") {
        let (list, errors) = AllowList::parse(std::slice::from_ref(&entry));
        prop_assert_eq!(errors.is_empty(), list != AllowList::default());
    }

    #[test]
    fn the_entry_of_a_destination_permits_it(host in "[a-z0-9-]{1,8}(\\.[a-z][a-z0-9_-]{0,7}){1,3}", port in 1_u16..) {
        if let Ok(destination) = Destination::parse(&format!("http://{host}:{port}/")) {
            let (list, errors) = AllowList::parse(&[destination.entry()]);
            prop_assert_eq!(errors, vec![]);
            prop_assert!(list.permits_host(&destination, "team-a").is_ok());
        }
    }
}
