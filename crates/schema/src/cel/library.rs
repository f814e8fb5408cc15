//! What Kubernetes adds to CEL: URLs, addresses, lists, sets, optional values.
#![expect(clippy::unnecessary_wraps, reason = "all functions of a table have one type")]

use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

use super::functions::{FunctionEntry, FunctionResult};
use super::value::{Error, List, Map, Val};
use crate::format::parse_ip;
use crate::text::parse_cidr;
use crate::url::{Url, UrlError};

pub(crate) const FUNCTIONS: &[FunctionEntry] = &[
    ("isURL", false, 1, |a| about_text(a, |text| Url::parse_request(text).is_ok())),
    ("url", false, 1, |a| {
        let [Val::Str(text)] = a else { return Ok(None) };
        let wrap = |problem: UrlError| {
            Error::new(format!("URL parse error during conversion from string: {problem}"))
        };
        Ok(Some(Val::Url(Arc::new(Url::parse(text).map_err(wrap)?))))
    }),
    ("getScheme", true, 1, |a| of_url(a, |url| url.scheme.clone())),
    ("getHost", true, 1, |a| of_url(a, |url| url.host.clone())),
    ("getHostname", true, 1, |a| of_url(a, |url| url.host_and_port().0.to_owned())),
    ("getPort", true, 1, |a| of_url(a, |url| url.host_and_port().1.to_owned())),
    ("getEscapedPath", true, 1, |a| of_url(a, Url::escaped_path)),
    ("getQuery", true, 1, |a| {
        let [Val::Url(url)] = a else { return Ok(None) };
        let list = |values: Vec<String>| Val::list(values.into_iter().map(Val::text).collect());
        let entries = url.parameters().into_iter().map(|(key, values)| (Val::text(key), list(values)));
        Ok(Some(Val::Map(Map::Own(Arc::new(entries.collect())))))
    }),
    ("isIP", false, 1, |a| about_text(a, |text| parse_ip(text).is_some())),
    ("ip", false, 1, |a| {
        let [Val::Str(text)] = a else { return Ok(None) };
        let wrong = || {
            Error::new(format!(
                "IP Address {} parse error during conversion from string",
                crate::go::quote(text)
            ))
        };
        Ok(Some(Val::Ip(parse_ip(text).ok_or_else(wrong)?)))
    }),
    ("ip.isCanonical", false, 1, |a| {
        about_text(a, |text| parse_ip(text).is_some_and(|ip| ip.to_string() == text))
    }),
    ("family", true, 1, |a| {
        Ok(match a {
            [Val::Ip(ip)] => Some(Val::Int(if ip.is_ipv4() { 4 } else { 6 })),
            _ => None,
        })
    }),
    ("isLoopback", true, 1, |a| about_ip(a, |ip| ip.is_loopback())),
    ("isUnspecified", true, 1, |a| about_ip(a, |ip| ip.is_unspecified())),
    ("isLinkLocalUnicast", true, 1, |a| {
        about_ip(a, |ip| match ip {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        })
    }),
    ("isCIDR", false, 1, |a| about_text(a, |text| parse_cidr(text).is_some())),
    ("cidr", false, 1, |a| {
        let [Val::Str(text)] = a else { return Ok(None) };
        let wrong =
            || Error::new(format!("network address parse error during conversion from string: {text}"));
        let (ip, length) = parse_cidr(text).ok_or_else(wrong)?;
        Ok(Some(Val::Cidr(ip, length)))
    }),
    ("containsIP", true, 2, |a| {
        Ok(match a {
            [Val::Cidr(network, length), Val::Ip(ip)] => Some(Val::Bool(is_within(*network, *length, *ip))),
            [Val::Cidr(network, length), Val::Str(text)] => {
                let wrong = || Error::new(format!("IP Address {} parse error", crate::go::quote(text)));
                Some(Val::Bool(is_within(*network, *length, parse_ip(text).ok_or_else(wrong)?)))
            }
            _ => None,
        })
    }),
    ("prefixLength", true, 1, |a| {
        Ok(match a {
            [Val::Cidr(_, length)] => Some(Val::Int(i64::from(*length))),
            _ => None,
        })
    }),
    ("masked", true, 1, |a| {
        Ok(match a {
            [Val::Cidr(network, length)] => Some(Val::Cidr(masked(*network, *length), *length)),
            _ => None,
        })
    }),
    ("isSorted", true, 1, |a| {
        let [Val::List(list)] = a else { return Ok(None) };
        let items = list.to_vec()?;
        for pair in items.windows(2) {
            let Some(order) = pair[0].compare(&pair[1]) else { return Ok(None) };
            if order.is_gt() {
                return Ok(Some(Val::Bool(false)));
            }
        }
        Ok(Some(Val::Bool(true)))
    }),
    ("sum", true, 1, sum),
    ("min", true, 1, |a| extreme(a, Ordering::is_lt, "min")),
    ("max", true, 1, |a| extreme(a, Ordering::is_gt, "max")),
    ("sets.contains", false, 2, |a| sets(a, |a, b| contains_all(a, b))),
    ("sets.equivalent", false, 2, |a| sets(a, |a, b| Ok(contains_all(a, b)? && contains_all(b, a)?))),
    ("sets.intersects", false, 2, |a| {
        sets(a, |a, b| {
            for item in b.iter() {
                if a.contains(&item?)? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }),
    ("optional.none", false, 0, |_| Ok(Some(Val::Optional(None)))),
    ("optional.of", false, 1, |a| Ok(Some(Val::Optional(Some(Box::new(a[0].clone())))))),
    ("optional.ofNonZeroValue", false, 1, |a| {
        Ok(Some(Val::Optional((!is_zero(&a[0])).then(|| Box::new(a[0].clone())))))
    }),
    ("hasValue", true, 1, |a| {
        let [Val::Optional(value)] = a else { return Ok(None) };
        Ok(Some(Val::Bool(value.is_some())))
    }),
    ("value", true, 1, |a| match a {
        [Val::Optional(Some(value))] => Ok(Some((**value).clone())),
        [Val::Optional(None)] => Err(Error::new("optional.none() dereference")),
        _ => Ok(None),
    }),
    ("or", true, 2, |a| {
        let [Val::Optional(value), other @ Val::Optional(_)] = a else { return Ok(None) };
        Ok(Some(if value.is_some() { a[0].clone() } else { other.clone() }))
    }),
    ("orValue", true, 2, |a| {
        let [Val::Optional(value), other] = a else { return Ok(None) };
        Ok(Some(value.as_ref().map_or_else(|| other.clone(), |value| (**value).clone())))
    }),
];

fn about_text<'a>(arguments: &[Val<'a>], is: fn(&str) -> bool) -> FunctionResult<'a> {
    Ok(match arguments {
        [Val::Str(text)] => Some(Val::Bool(is(text))),
        _ => None,
    })
}

fn about_ip<'a>(arguments: &[Val<'a>], is: fn(IpAddr) -> bool) -> FunctionResult<'a> {
    Ok(match arguments {
        [Val::Ip(ip)] => Some(Val::Bool(is(*ip))),
        _ => None,
    })
}

fn of_url<'a>(arguments: &[Val<'a>], part: fn(&Url) -> String) -> FunctionResult<'a> {
    Ok(match arguments {
        [Val::Url(url)] => Some(Val::text(part(url))),
        _ => None,
    })
}

fn is_within(network: IpAddr, length: u8, ip: IpAddr) -> bool {
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => (u128::from(ip.to_bits()) << 96, 32),
        IpAddr::V6(ip) => (ip.to_bits(), 128),
    };
    let ((network, width), (ip, other_width)) = (bits(network), bits(ip));
    let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or_default();
    width == other_width && network & mask == ip & mask
}

/// A network's address without the bits behind its length.
fn masked(network: IpAddr, length: u8) -> IpAddr {
    match network {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or_default();
            IpAddr::V4((ip.to_bits() & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or_default();
            IpAddr::V6((ip.to_bits() & mask).into())
        }
    }
}

fn sum<'a>(arguments: &[Val<'a>]) -> FunctionResult<'a> {
    let [Val::List(list)] = arguments else { return Ok(None) };
    let Some((_, add)) = super::functions::find("_+_", false, 2) else { return Ok(None) };
    let mut total: Option<Val<'a>> = None;
    for item in list.iter() {
        let item = item?;
        total = match total {
            Some(total) => add(&[total, item])?,
            None => Some(item),
        };
    }
    Ok(Some(total.unwrap_or(Val::Int(0))))
}

fn extreme<'a>(arguments: &[Val<'a>], wanted: fn(Ordering) -> bool, name: &str) -> FunctionResult<'a> {
    let [Val::List(list)] = arguments else { return Ok(None) };
    let mut best: Option<Val<'a>> = None;
    for item in list.iter() {
        let item = item?;
        let is_better = match &best {
            Some(best) => match item.compare(best) {
                Some(order) => wanted(order),
                None => return Ok(None),
            },
            None => true,
        };
        if is_better {
            best = Some(item);
        }
    }
    best.map(Some).ok_or_else(|| Error::new(format!("{name} called on empty list")))
}

fn sets<'a>(
    arguments: &[Val<'a>],
    is: fn(&List<'a>, &List<'a>) -> Result<bool, Error>,
) -> FunctionResult<'a> {
    let [Val::List(a), Val::List(b)] = arguments else { return Ok(None) };
    Ok(Some(Val::Bool(is(a, b)?)))
}

fn contains_all<'a>(list: &List<'a>, other: &List<'a>) -> Result<bool, Error> {
    for item in other.iter() {
        if !list.contains(&item?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Null => true,
        Val::Bool(b) => !b,
        Val::Int(int) => *int == 0,
        Val::Uint(uint) => *uint == 0,
        Val::Double(double) => double.abs() <= 0.0,
        Val::Str(text) => text.is_empty(),
        Val::Bytes(bytes) => bytes.is_empty(),
        Val::List(list) => list.len() == 0,
        Val::Map(map) => map.len() == 0,
        Val::Duration(nanoseconds) => *nanoseconds == 0,
        Val::Optional(value) => value.is_none(),
        _ => false,
    }
}
