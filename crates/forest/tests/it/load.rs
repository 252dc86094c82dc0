//! What a batch costs where nothing fails.

use crate::world::World;

fn ids(n: u8) -> Vec<u8> {
    (1..=n).collect()
}

/// Some batches as fast as the window lets them go.
fn loaded(n: u8, entry_bytes: usize, positions: u64) -> World {
    let mut world = World::new(u64::from(n), &ids(n), entry_bytes);
    world.run(30_000);
    world.counts = Default::default();
    while world.counts.batches < 100 {
        world.propose(positions);
        world.run(100);
    }
    world
}

#[test]
fn the_leader_sends_little_however_many_servers_there_are() {
    for n in [15, 50, 100, 200] {
        for (entry_bytes, positions, bytes_per_byte) in
            [(256, 1, 2.3), (1000, 1, 2.3), (1100, 4, 1.3), (1100, 16, 1.1), (8192, 1, 1.1), (60_000, 1, 1.1)]
        {
            let mut world = loaded(n, entry_bytes, positions);
            let counts = world.counts.clone();
            world.run(30_000);
            world.assert_whole();
            let messages = (counts.leader_out + counts.leader_in) as f64 / counts.batches as f64;
            let bytes = counts.leader_bytes as f64 / counts.body_bytes as f64;
            let busiest =
                counts.bytes.iter().filter(|(id, _)| **id != world.leader).map(|(_, bytes)| *bytes).max();
            let busiest = busiest.unwrap() as f64 / counts.body_bytes as f64;
            let elapsed = world.now_us - 60_000;
            println!(
                "{n}: {entry_bytes} x {positions}: {messages:.1} messages, {bytes:.2} bytes per byte, busiest {busiest:.2}, {} us a batch, pulls {}",
                elapsed / counts.batches,
                counts.pulls,
            );
            assert!(messages <= 14.0, "{n}: {messages} messages a batch");
            assert!(bytes <= bytes_per_byte, "{n}: {bytes} bytes per byte of {entry_bytes} x {positions}");
            assert_eq!((counts.pulls, counts.complaints), (0, 0));
        }
    }
}

#[test]
fn an_idle_ensemble_says_little() {
    let mut world = World::new(1, &ids(200), 64);
    world.propose(1);
    world.run(1_000_000);
    world.assert_whole();
    world.counts = Default::default();
    world.run(1_000_000);
    let counts = &world.counts;
    println!("idle: {} out, {} in", counts.leader_out, counts.leader_in);
    assert!(counts.leader_out <= 100 && counts.leader_in <= 150);
    assert_eq!((counts.pulls, counts.complaints), (0, 0));
}
