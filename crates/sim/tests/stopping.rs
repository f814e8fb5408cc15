//! A scale-down of 400 workloads is stopped in the middle: a hold, `suspend` and the kill switch are honoured within five seconds.

use coppice_sim::run::{Plan, run};
use coppice_sim::scenario;

/// Most of a run's time goes to small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[test]
fn a_scale_down_that_is_stopped_stops() {
    for name in ["many-held", "many-suspended", "many-paused"] {
        let story = scenario::by_name(name).unwrap();
        let outcome = run(&Plan::undisturbed(story.clone(), 0)).unwrap();
        let (first, unlike) = (outcome.violations.first(), outcome.end.unlike(&story.ends));
        assert_eq!(first, None, "{name}: {} workloads too many", outcome.violations.len());
        assert_eq!(unlike, [""; 0], "{name}");
    }
}
