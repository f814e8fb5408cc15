//! An amount of a resource as Kubernetes writes it: `500m`, `4Gi`, `1e3`.

mod parse;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use parse::QuantityError;

/// How many of the smallest unit make one.
const NANOS: i128 = 1_000_000_000;
/// Amounts are smaller, of either sign. The API server prints `1000E` as `1`, because no suffix is left for the thousand.
const LIMIT: i128 = 1_000_000_000_000_000_000_000 * NANOS;
/// Amounts that are written with a binary suffix are not larger: the API server would take this one instead of them.
const BINARY_LIMIT: i128 = i64::MAX as i128 * NANOS;

/// The decimal suffixes with their powers of ten.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
/// The binary suffixes with their powers of two.
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// An exact amount of a resource, in billionths.
///
/// What is written more precisely than that is rounded away from zero, as the API server does. Equal are equal amounts,
/// however they are written: `1` equals `1000m`. Printing is canonical, as the API server prints what it has calculated (but
/// for sums of 8Ei or more, which it prints in a way that it does not read itself), and parses to the same amount. It may
/// repeat a text that it has read (`+1`, `1.500`), so compare quantities and not their texts.
///
/// Each resource of each quota in the caches is one: the format is in bits that the billionths leave free, or it would take as much memory as
/// they do.
#[derive(Clone, Copy, Default)]
pub struct Quantity(i128);

/// As many bits as a format has.
const FORMAT_BITS: u32 = 2;
const FORMAT_MASK: i128 = (1 << FORMAT_BITS) - 1;

/// In which form an amount is printed: the one in which it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// `12M`
    Decimal = 0,
    /// `12Mi`; what it cannot print exactly is printed as decimal.
    Binary = 1,
    /// `12e6`
    Exponent = 2,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self::new(0, Format::Decimal);

    /// So many billionths, which have to be within the limit.
    const fn new(nanos: i128, format: Format) -> Self {
        Self((nanos << FORMAT_BITS) | format as i128)
    }

    const fn nanos(self) -> i128 {
        // Of a negative number, too: the format was added to a multiple.
        self.0 >> FORMAT_BITS
    }

    const fn format(self) -> Format {
        match self.0 & FORMAT_MASK {
            1 => Format::Binary,
            2 => Format::Exponent,
            _ => Format::Decimal,
        }
    }

    /// Both together. Nothing if that is 1000E or more, which no quantity can be.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.with(self.nanos() + other.nanos(), other)
    }

    /// This without the other; below zero if the other is larger. Nothing if that is -1000E or less.
    #[must_use]
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.with(self.nanos() - other.nanos(), other)
    }

    /// The result of a calculation. As on the API server, zero takes the format of what is added to it.
    fn with(self, nanos: i128, other: Self) -> Option<Self> {
        let format = if self.is_zero() { other.format() } else { self.format() };
        // Two amounts within the limit: neither their sum nor their difference overflows.
        (nanos.abs() < LIMIT).then_some(Self::new(nanos, format))
    }

    /// Whether it is nothing.
    pub const fn is_zero(self) -> bool {
        self.nanos() == 0
    }

    /// Whether it is a whole number of units.
    pub const fn is_whole(self) -> bool {
        self.nanos() % NANOS == 0
    }

    /// Whether it is a whole number of thousandths. The API server rounds finer amounts in lists of resources up.
    pub const fn is_in_thousandths(self) -> bool {
        self.nanos() % (NANOS / 1000) == 0
    }

    /// The nearest floating-point number: for metrics, and for nothing that is decided.
    #[expect(clippy::cast_precision_loss, reason = "metrics have no other numbers")]
    pub fn as_f64(self) -> f64 {
        self.nanos() as f64 / NANOS as f64
    }

    /// Whether it is less than nothing.
    pub const fn is_negative(self) -> bool {
        self.nanos() < 0
    }
}

impl From<u32> for Quantity {
    fn from(number: u32) -> Self {
        Self::new(i128::from(number) * NANOS, Format::Decimal)
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quantity").field("nanos", &self.nanos()).field("format", &self.format()).finish()
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos() == other.nanos()
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos().cmp(&other.nanos())
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos().hash(state);
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse::parse(text)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nanos, format) = (self.nanos(), self.format());
        let binary = format == Format::Binary
            && (1024 * NANOS..=BINARY_LIMIT).contains(&nanos.abs())
            && nanos % NANOS == 0;
        if self.is_zero() {
            f.write_str("0")
        } else if binary {
            let (number, times) = without_factors(nanos / NANOS, 1024);
            write!(f, "{number}{}", times.checked_sub(1).map_or("", |at| BINARY[at].0))
        } else {
            let (number, times) = without_factors(nanos, 1000);
            let (suffix, exponent) = DECIMAL[times];
            match format {
                Format::Exponent if exponent != 0 => write!(f, "{number}e{exponent}"),
                Format::Exponent | Format::Decimal | Format::Binary => write!(f, "{number}{suffix}"),
            }
        }
    }
}

/// A number that is not zero without its factors, and how many there were. Within the limit there is a suffix for each.
fn without_factors(mut number: i128, factor: i128) -> (i128, usize) {
    let mut times = 0;
    while number % factor == 0 {
        number /= factor;
        times += 1;
    }
    (number, times)
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity, such as 2, 500m or 4Gi; write one with a point in quotation marks")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Quantity, E> {
                self.visit_i128(number.into())
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Quantity, E> {
                self.visit_i128(number.into())
            }

            fn visit_i128<E: serde::de::Error>(self, number: i128) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    /// Any amount in any format.
    fn any_quantity() -> impl Strategy<Value = Quantity> {
        let format = prop_oneof![Just(Format::Decimal), Just(Format::Binary), Just(Format::Exponent)];
        // Round numbers are what people write.
        let factor = prop_oneof![Just(1), Just(NANOS), Just(NANOS << 10), Just(NANOS << 30)];
        let number = prop_oneof![-10_000_i128..10_000, -(LIMIT >> 30) / NANOS..LIMIT >> 30];
        (number, factor, format).prop_filter_map("within the limit", |(number, factor, format)| {
            let nanos = number.checked_mul(factor).filter(|nanos| nanos.abs() < LIMIT)?;
            Some(Quantity::new(nanos, format))
        })
    }

    #[test]
    fn equal_amounts_are_equal_however_they_are_written() {
        for (one, other) in
            [("1", "1000m"), ("1Ki", "1024"), ("1e3", "1k"), ("0", "-0Ki"), ("0.5Gi", "512Mi")]
        {
            assert_eq!(quantity(one), quantity(other));
        }
        assert_eq!(Quantity::from(3_u32), quantity("3"));
        assert!(quantity("1G") < quantity("1Gi"));
        assert!(quantity("-1") < quantity("0"));
        assert!(quantity("-1n").is_negative() && !quantity("0").is_negative());
        assert!(quantity("1000m").is_whole() && !quantity("1m").is_whole());
        assert!(quantity("-1m").is_in_thousandths() && !quantity("1u").is_in_thousandths());
    }

    #[test]
    fn sums_beyond_the_limit_are_none() {
        let most = quantity("999E");
        assert_eq!(most.checked_add(quantity("0.999999999E")).unwrap().to_string(), "999999999999G");
        assert_eq!(most.checked_add(quantity("1E")), None);
        assert_eq!(quantity("-999E").checked_sub(quantity("1E")), None);
        assert_eq!(most.checked_sub(most), Some(Quantity::ZERO));
        let sum = quantity("7Ei").checked_add(quantity("2Ei")).unwrap();
        assert_eq!(sum.to_string(), "10376293541461622784", "as 9Ei it could not be read again");
    }

    #[test]
    fn json_has_texts_or_whole_numbers() {
        let read = |json| serde_json::from_str::<Quantity>(json);
        assert_eq!(read("\"1500m\"").unwrap(), quantity("1.5"));
        assert_eq!((read("20").unwrap(), read("-1").unwrap()), (quantity("20"), quantity("-1")));
        let error = read("1.5").unwrap_err().to_string();
        assert!(error.contains("write one with a point in quotation marks"), "{error}");
        assert_eq!(serde_json::to_string(&quantity("1.5Gi")).unwrap(), "\"1536Mi\"");
    }

    #[test]
    fn amount_and_format_are_kept_together_in_sixteen_bytes() {
        assert_eq!(size_of::<Quantity>(), 16);
        for format in [Format::Decimal, Format::Binary, Format::Exponent] {
            for nanos in [0, 1, -1, NANOS, -NANOS, LIMIT - 1, 1 - LIMIT] {
                let quantity = Quantity::new(nanos, format);
                assert_eq!((quantity.nanos(), quantity.format()), (nanos, format));
            }
        }
        assert_eq!(format!("{:?}", quantity("-1Ki")), "Quantity { nanos: -1024000000000, format: Binary }");
        assert_eq!(Quantity::default().to_string(), "0");
    }

    proptest! {
        #[test]
        fn what_is_printed_is_the_same_amount_and_prints_alike(any in any_quantity()) {
            let printed = any.to_string();
            let read: Quantity = printed.parse().unwrap();
            prop_assert_eq!(read, any, "{}", printed);
            prop_assert_eq!(read.to_string(), printed);
        }

        #[test]
        fn what_is_added_can_be_taken_away(one in any_quantity(), other in any_quantity()) {
            if let Some(sum) = one.checked_add(other) {
                prop_assert_eq!(other.checked_add(one), Some(sum));
                prop_assert_eq!(sum.checked_sub(other), Some(one));
                prop_assert_eq!(sum.cmp(&one), other.cmp(&Quantity::ZERO));
            }
            if let Some(difference) = one.checked_sub(other) {
                prop_assert_eq!(one.cmp(&other), difference.cmp(&Quantity::ZERO));
            }
        }

        #[test]
        fn parsing_never_panics(any in ".{0,60}", close in "[-+0-9.]{0,50}[eEnumkKMGTPi]{0,2}[-+0-9]{0,12}") {
            for text in [any, close] {
                if let Ok(quantity) = text.parse::<Quantity>() {
                    prop_assert!(quantity.nanos().abs() < LIMIT);
                    prop_assert_eq!(quantity.to_string().parse(), Ok(quantity));
                }
            }
        }
    }
}
