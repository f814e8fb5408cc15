//! Amounts of resources, as arguments have them. Pure.

use std::str::FromStr;

use coppice_hierarchy::{ResourceName, ResourceNameError, Resources, ResourcesError};
use coppice_quantity::{Quantity, QuantityError};
use thiserror::Error;

/// An amount of one resource: `RESOURCE=AMOUNT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Amount {
    name: ResourceName,
    amount: Quantity,
}

/// Why a text is no amount: what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum AmountError {
    #[error("write RESOURCE=AMOUNT, such as pods=5 or memory=2Gi")]
    Form,
    #[error(transparent)]
    Name(#[from] ResourceNameError),
    #[error("{0}: {1}")]
    Quantity(ResourceName, QuantityError),
    #[error("{0}: {1} moves nothing: write more than 0")]
    Nothing(ResourceName, Quantity),
    #[error(transparent)]
    Resources(#[from] ResourcesError),
    #[error("{0} is there twice: write one amount of each resource")]
    Twice(ResourceName),
}

impl FromStr for Amount {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, AmountError> {
        let (name, amount) = text.split_once('=').ok_or(AmountError::Form)?;
        if name.is_empty() {
            return Err(AmountError::Form);
        }
        let name: ResourceName = name.parse()?;
        let amount: Quantity = amount.parse().map_err(|why| AmountError::Quantity(name.clone(), why))?;
        Resources::parse([(name.as_str(), amount)])?;
        Ok(Self { name, amount })
    }
}

/// Reads an amount that can be transferred.
pub(crate) fn transferable(text: &str) -> Result<Amount, AmountError> {
    match text.parse() {
        Ok(Amount { name, amount }) if amount.is_zero() => Err(AmountError::Nothing(name, amount)),
        Err(AmountError::Resources(ResourcesError::Negative(name, amount))) => {
            Err(AmountError::Nothing(name, amount))
        }
        parsed => parsed,
    }
}

/// Several amounts, each of another resource.
pub(crate) fn resources_of(amounts: &[Amount]) -> Result<Resources, AmountError> {
    let again =
        amounts.iter().enumerate().find(|(at, one)| amounts[..*at].iter().any(|o| o.name == one.name));
    if let Some((_, again)) = again {
        return Err(AmountError::Twice(again.name.clone()));
    }
    Ok(Resources::parse(amounts.iter().map(|Amount { name, amount }| (name.as_str(), *amount)))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Resources {
        let amounts: Vec<Amount> = text.split(',').map(|one| one.parse().unwrap()).collect();
        resources_of(&amounts).unwrap()
    }

    #[test]
    fn amounts_are_more_than_nothing_of_what_quotas_count() {
        assert_eq!(
            amount("pods=5,requests.cpu=1500m,memory=2Gi").to_string(),
            "1500m cpu, 2Gi memory, 5 pods"
        );
        assert_eq!(amount("pods=0").to_string(), "0 pods");
        let error = |text: &str| transferable(text).unwrap_err().to_string();
        for text in ["pods", "=5"] {
            assert_eq!(error(text), "write RESOURCE=AMOUNT, such as pods=5 or memory=2Gi");
        }
        for (text, says) in [
            (
                "storage=5",
                "\"storage\" is not a resource that quotas count: write one such as cpu, limits.memory, requests.storage, pods, \
                 count/deployments.apps or requests.example.com/gpu",
            ),
            (
                "pods=",
                "pods: a quantity is missing: write a number, with a suffix where it needs one, such as 2, 500m or 4Gi",
            ),
            ("memory=1gi", "memory: \"1gi\" has an unknown suffix: write Gi for 2^30"),
            ("pods=0", "pods: 0 moves nothing: write more than 0"),
            ("cpu=-1", "cpu: -1 moves nothing: write more than 0"),
            (
                "pods=1.5",
                "pods: 1500m is not a whole number, and objects are counted: write one without a fraction",
            ),
            (
                "cpu=1500u",
                "cpu: 1500u is finer than quotas are: write a whole number of thousandths, such as 1m",
            ),
        ] {
            assert_eq!(error(text), says);
        }
        let twice: Vec<Amount> = ["pods=1", "cpu=1", "requests.cpu=2"].map(|one| one.parse().unwrap()).into();
        assert_eq!(
            resources_of(&twice).unwrap_err().to_string(),
            "cpu is there twice: write one amount of each resource"
        );
    }
}
