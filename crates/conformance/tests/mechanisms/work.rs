//! Work that was counted by hand.

use burn::tensor::Device;
use libtest_mimic::Failed;
use zoo_attention::mechanisms::SlidingWindow;
use zoo_attention::{Mechanism, MechanismConfig, MultiHeadAttentionConfig};

pub(crate) fn is_counted(device: &Device) -> Result<(), Failed> {
    let flops = |mechanism: MechanismConfig, [seq_q, seq_k]: [usize; 2], causal: bool| {
        let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(mechanism);
        config.init(device).flops(seq_q, seq_k, causal)
    };
    let projections = 2.0 * 8.0 * (4.0 * 64.0 / 2.0); // 3 and 5 places, two matrices each
    let by_pair = 2.0 * 2.0 * 4.0; // score and value, four numbers in a head
    let flash = || Mechanism::Flash.into();
    let full = flops(flash(), [3, 5], false);
    assert_eq!(full, projections + 2.0 * 15.0 * by_pair);
    let causal = flops(flash(), [3, 5], true);
    assert_eq!(causal, projections + 2.0 * 12.0 * by_pair);

    let window = MechanismConfig::SlidingWindow(SlidingWindow { window: 1 });
    let neighbours = flops(window, [4, 4], false);
    assert_eq!(neighbours, projections + 2.0 * 10.0 * by_pair);

    let state = 2.0 * 4.0 * 4.0; // of a key or a query
    let linear = flops(Mechanism::Linear.into(), [3, 5], true);
    assert_eq!(linear, projections + 2.0 * 8.0 * state);

    // One key and value head instead of two.
    let shared = flops(Mechanism::MultiQuery.into(), [3, 5], false);
    let fewer = 2.0 * 5.0 * (2.0 * 32.0);
    assert_eq!(shared, projections - fewer + 2.0 * 15.0 * by_pair);

    let through = flops(Mechanism::Multiplicative.into(), [3, 5], false);
    assert_eq!(through, full + 2.0 * 2.0 * 3.0 * 16.0);
    Ok(())
}
