//! The answer about the trees down which appends go.

use serde_json::{Map, Value, json};
use stoa_core::{ForestServer, ForestTree, Repair, RepairCause};

use super::command::fields;
use super::render::of_snapshot;
use crate::view::Stats;
use crate::view::forest::{NO_FOREST, cause, place_name};

fn ms(us: u64) -> f64 {
    us as f64 / 1e3
}

pub(super) fn forest(stats: &Stats) -> Map<String, Value> {
    let Some(forest) = &stats.forest else { return fields(json!({ "error": NO_FOREST })) };
    let shape = forest.shape;
    let counts = &forest.counts;
    fields(json!({
        "server_id": stats.ensemble.id,
        "servers_min": forest.servers_min,
        "trees_max": forest.settings.trees(),
        "children": forest.settings.children(),
        "term": shape.map(|shape| shape.term),
        "shape": shape.map(|shape| shape.number),
        "leader_id": shape.map(|shape| shape.leader),
        "trees": forest.trees.iter().enumerate().map(of_tree).collect::<Vec<_>>(),
        "servers": forest.servers.iter().map(of_server).collect::<Vec<_>>(),
        "frames_sent": counts.frames_sent,
        "bytes_sent": counts.bytes_sent,
        "frames_received": counts.frames_received,
        "bytes_received": counts.bytes_received,
        "acknowledgements_sent": counts.acknowledgements_sent,
        "acknowledgements_received": counts.acknowledgements_received,
        "pulls_sent": counts.pulls_sent,
        "pulls_answered": counts.pulls_answered,
        "complaints_sent": counts.complaints_sent,
        "complaints_received": counts.complaints_received,
        "snapshots": stats.ensemble.given.0.iter().map(of_snapshot).collect::<Vec<_>>(),
        "repairs_made": counts.repairs,
        "repairs": forest.repairs.iter().map(of_repair).collect::<Vec<_>>(),
    }))
}

fn of_tree((number, tree): (usize, &ForestTree)) -> Value {
    let children: Map<String, Value> =
        tree.children.iter().map(|(id, its)| (id.to_string(), json!(its))).collect();
    json!({
        "tree": number,
        "root": tree.root,
        "children": children,
        "silent_ms": tree.silent_us.map(ms),
    })
}

fn of_server(server: &ForestServer) -> Value {
    let late = server.late;
    json!({
        "server_id": server.id,
        "place": place_name(server.place),
        "tree": server.tree,
        "is_fed": server.is_fed,
        "understands": server.understands,
        "late_entries": late.map(|late| late.entries),
        "late_bytes": late.map(|late| late.bytes),
        "late_ms": late.map(|late| ms(late.age_us)),
    })
}

fn of_repair(repair: &Repair) -> Value {
    let of_server = |(id, why): &(u8, RepairCause)| {
        let is_aside = !matches!(why, RepairCause::Back | RepairCause::Left);
        json!({ "server_id": id, "is_aside": is_aside, "why": cause(why) })
    };
    json!({
        "term": repair.term,
        "shape": repair.number,
        "age_ms": ms(repair.age_us),
        "servers": repair.servers.iter().map(of_server).collect::<Vec<_>>(),
    })
}
