//! What the campaigns found, as it was found: each finding is played again, whatever the seeds of today's campaigns are.

use coppice_campaign::campaign::Campaign;
use coppice_campaign::run::RunPlan;
use coppice_campaign::suite;
use jiff::SignedDuration;

/// What was wrong, in which scenario, with which seed, by how many milliseconds the clock of the first replica was wrong, and what
/// went wrong besides.
const FINDINGS: &[(&str, &str, u64, i64, &str)] = &[
    ("a removal that the watch does not tell of", "ttl-fires", 0, 0, "event:40=dropped"),
    ("a change that the watch does not tell of", "ttl-fires", 0, 0, "event:4=dropped"),
    (
        "the same, with a deployment",
        "scaled-down",
        184,
        0,
        "read:0=answer-lost,read:6=answer-lost,read:14=answer-lost,event:0=delayed:15545ms,\
         event:1=broken,event:3=expired,event:8=expired,read:39=late:6529ms,event:12=ended,\
         event:13=expired,event:16=dropped,event:19=ended,event:22=delayed:21898ms,\
         event:25=expired,event:26=dropped,event:33=expired,event:35=expired,event:36=expired,\
         event:37=ended,event:40=broken,event:47=ended,event:48=delayed:18016ms,event:49=broken,\
         event:50=silent,event:52=expired,event:54=dropped",
    ),
    (
        "a hold that is written while facts are read slowly",
        "notice",
        875,
        0,
        "lease:0=refused:503,read:23=refused:500,event:4=dropped,lease:2=refused:503,\
         read:28=refused:429,read:29=no-answer,event:6=ended,write:7=late:14030ms,event:21=expired,\
         event:33=delayed:38472ms,read:40=late:9906ms,event:65=delayed:31644ms",
    ),
    (
        "steps that are taken long after their reservation",
        "budget",
        5879,
        0,
        "read:0=refused:429,read:3=late:6842ms,read:4=twice,read:13=answer-lost,\
         read:22=answer-lost,write:0=late:17017ms,read:27=refused:500,read:30=answer-lost,\
         event:7=delayed:27482ms,event:17=broken,event:18=broken,event:19=ended,\
         write:10=refused:429,read:39=late:14460ms,write:13=answer-lost,read:45=refused:503,\
         event:28=broken,event:33=ended,event:34=dropped,lease:10=refused:429,\
         event:46=delayed:28300ms,event:52=ended,lease:16=refused:500,lease:17=answer-lost,\
         read:56=answer-lost,event:61=broken,lease:22=no-answer,read:65=answer-lost,\
         lease:24=late:16186ms,write:31=late:10372ms,read:74=refused:500,read:77=answer-lost,\
         event:71=ended,event:77=dropped,read:87=refused:429,read:91=no-answer,write:37=no-answer,\
         write:38=twice,event:86=expired,write:39=answer-lost",
    ),
    (
        "a notice by a clock that is behind, carried out by another",
        "notice",
        517,
        -1900,
        "lease:1=killed-after",
    ),
    (
        "a notice by a clock that is ahead, carried out by another",
        "notice",
        1381,
        1900,
        "lease:1=killed-after",
    ),
    ("a notice whose write takes seconds", "notice", 2006, 0, "write:2=late:3553ms"),
    (
        "a notice that is late by what is read for it, and that cannot be written once more",
        "cluster-announced",
        0,
        0,
        "read:40=no-answer,write:6=refused:500",
    ),
    (
        "a webhook that is sent again by a replica whose watch of pods was silent since before the pods succeeded",
        "cluster-pods-succeed",
        5_000_490,
        0,
        "read:3=refused:429,read:4=answer-lost,read:7=answer-lost,read:8=refused:429,\
         read:9=refused-after:504,read:11=late:9378ms,read:27=answer-lost,read:33=refused-after:504,\
         event:3=ended,event:4=silent,lease:13=late:8913ms,lease:14=refused:503,lease:15=refused:500",
    ),
    (
        "pods that a new leader did not evaluate, since it still listed the settings",
        "settling",
        5_566_592_953_261_292_707,
        0,
        "read:10=no-answer,lease:4=killed-after",
    ),
    (
        "a webhook that is sent before the pods are listed again",
        "rearm",
        4_133_523_244_406_232_844,
        0,
        "read:2=late:2771ms,read:8=refused:500,read:16=refused:429,read:34=refused:503,\
         read:42=answer-lost,write:2=killed-after,read:47=no-answer,read:56=refused:500,\
         read:57=refused:503,write:3=refused:503,lease:7=late:14569ms,write:8=cut-off:56747ms",
    ),
    (
        "a scale-down that is refused, and taken back twice since the answer was lost: a fourth was not the last",
        "cluster-reverted",
        0,
        0,
        "write:24=refused:429,write:25=refused-after:504",
    ),
    (
        "a tree without its root that ends while namespaces are in it, of which a cache has lost the event",
        "tree-detached-without-root",
        388_707_631_230_961_232,
        0,
        "event:5=silent,event:48=ended,event:57=ended",
    ),
];

#[test]
fn what_was_found_once_is_not_found_again() {
    for (name, scenario, seed, clock, faults) in FINDINGS {
        let faults = faults.split(',').map(|fault| fault.parse().unwrap()).collect();
        let (suite, scenario) = suite::find(suite::ALL, scenario).unwrap();
        let campaign = Campaign::of(&suite, [scenario.clone()]).unwrap();
        let mut plan = RunPlan { faults, ..suite.without_faults(scenario, *seed) };
        plan.replicas[0].clock_error = SignedDuration::from_millis(*clock);
        let (wrong, outcome) = campaign.check_twice(&plan).unwrap();
        assert_eq!(wrong, [""; 0], "{name}\n{}", outcome.trace.timeline(false));
        assert!(!outcome.fired.is_empty(), "{name}: no fault has struck");
    }
}
