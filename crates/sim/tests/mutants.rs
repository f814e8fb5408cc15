//! The campaign finds bugs: an operator that has one, on purpose, does not get through it.

#![cfg(feature = "mutants")]

use coppice_runtime::mutants::Mutant;
use coppice_sim::campaign::Campaign;
use coppice_sim::run::Plan;
use coppice_sim::scenario;

/// Most of a run's time goes to small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Every story without faults, then many with faults by chance, then one fault at every place.
fn plans(campaign: &Campaign) -> impl Iterator<Item = Plan> + '_ {
    let undisturbed = scenario::all().into_iter().map(|story| Plan::undisturbed(story, 0));
    let everywhere = scenario::all().into_iter().flat_map(|story| campaign.everywhere(&story));
    undisturbed.chain((0..600).map(Campaign::by_chance)).chain(everywhere)
}

/// The rules by which a mutant was caught, with how many runs it took.
fn caught(campaign: &Campaign, mutant: Mutant) -> Option<(usize, Vec<String>)> {
    for (n, plan) in plans(campaign).enumerate() {
        let plan = Plan { mutant: Some(mutant), ..plan };
        let (wrong, _) = campaign.judge(&plan).unwrap();
        if !wrong.is_empty() {
            return Some((n + 1, wrong));
        }
    }
    None
}

#[test]
fn every_mutant_is_caught() {
    let campaign = Campaign::prepare().unwrap();
    let survivors: Vec<Mutant> = std::thread::scope(|scope| {
        let hunts = Mutant::ALL.map(|mutant| {
            let campaign = &campaign;
            scope.spawn(move || match caught(campaign, mutant) {
                Some((runs, wrong)) => {
                    println!("{mutant:?}: caught in run {runs}: {}", wrong.join("; "));
                    None
                }
                None => Some(mutant),
            })
        });
        hunts.into_iter().filter_map(|hunt| hunt.join().unwrap()).collect()
    });
    assert_eq!(survivors, [], "nothing that these bugs do is seen");
}
