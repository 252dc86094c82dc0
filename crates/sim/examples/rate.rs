use std::panic::{AssertUnwindSafe, catch_unwind};
use stoa_core::Bug;
use stoa_sim::partitions::{Plan, Run};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let bug = match args[1].as_str() { "p" => Bug::PipelinedFollowsNothing, "o" => Bug::OldReadIsTold, "t" => Bug::TimestampIgnored, _ => Bug::HighestZxid };
    let (kind, parts, from, to) = (&args[2], args[3].parse().unwrap(), args[4].parse::<u64>().unwrap(), args[5].parse::<u64>().unwrap());
    let mut plan = Plan::named(kind).unwrap().with_partitions(parts);
    for it in &args[6..] {
        let m = &mut plan.life.manners;
        let (k, v) = it.split_once('=').unwrap();
        let v: u64 = v.parse().unwrap();
        match k {
            "prove" => m.prove_one_in = v, "behind" => m.behind_close_one_in = v, "close" => m.close_one_in = v,
            "strange" => m.strange_one_in = v, "forged" => m.forged_one_in = v, "odd" => m.odd_timeout_one_in = v,
            "move" => m.move_one_in = v, "hang" => m.hang_up_one_in = v, "leave" => m.leave_one_in = v, "old" => m.old_one_in = v,
            "window" => m.window = v as usize, "clients" => m.clients = v as usize, "think" => m.think_us = v,
            _ => panic!(),
        }
    }
    std::panic::set_hook(Box::new(|_| {}));
    let mut count = 0;
    for seed in from..to {
        let mut run = Run::new(seed, &plan, false);
        run.plant(bug);
        let out = catch_unwind(AssertUnwindSafe(|| run.run()));
        if out.map_or(true, |r| r.is_err()) { count += 1; }
    }
    println!("{args:?}: {count} of {}", to - from);
}
