//! Constants and tables of this module, printed by `scripts/math/constants.py`; do not
//! edit by hand. Bit patterns, because they are what the proofs in `docs/math.md` speak of.

const fn bits(pattern: u64) -> f64 {
    f64::from_bits(pattern)
}

/// 32/ln2.
pub(crate) const EXP_INVERSE_STEP: f64 = bits(0x40471547652b82fe); // 46.16624130844683
/// ln2/32 to a multiple of 2^-43: 38 bits, so its product with |k| < 2^15 is exact.
pub(crate) const EXP_STEP_HEAD: f64 = bits(0x3f962e42fefa0000); // 0.021660849392446835
/// ln2/32 minus `EXP_STEP_HEAD`.
pub(crate) const EXP_STEP_TAIL: f64 = bits(0x3d2cf79abc9e3b3a); // 5.145609244655338e-14
/// 1/2!.
pub(crate) const EXP_C2: f64 = bits(0x3fe0000000000000); // 0.5
/// 1/3!.
pub(crate) const EXP_C3: f64 = bits(0x3fc5555555555555); // 0.16666666666666666
/// 1/4!.
pub(crate) const EXP_C4: f64 = bits(0x3fa5555555555555); // 0.041666666666666664
/// 1/5!.
pub(crate) const EXP_C5: f64 = bits(0x3f81111111111111); // 0.008333333333333333
/// 1/6!.
pub(crate) const EXP_C6: f64 = bits(0x3f56c16c16c16c17); // 0.001388888888888889
/// 1/7!.
pub(crate) const EXP_C7: f64 = bits(0x3f2a01a01a01a01a); // 0.0001984126984126984
/// 2^(j/32) as head (nearest f64) and tail (the rest).
pub(crate) static EXP_TABLE: [[f64; 2]; 32] = [
    [bits(0x3ff0000000000000), bits(0x0000000000000000)],
    [bits(0x3ff059b0d3158574), bits(0x3c8d73e2a475b465)],
    [bits(0x3ff0b5586cf9890f), bits(0x3c98a62e4adc610b)],
    [bits(0x3ff11301d0125b51), bits(0xbc96c51039449b3a)],
    [bits(0x3ff172b83c7d517b), bits(0xbc819041b9d78a76)],
    [bits(0x3ff1d4873168b9aa), bits(0x3c9e016e00a2643c)],
    [bits(0x3ff2387a6e756238), bits(0x3c99b07eb6c70573)],
    [bits(0x3ff29e9df51fdee1), bits(0x3c8612e8afad1255)],
    [bits(0x3ff306fe0a31b715), bits(0x3c86f46ad23182e4)],
    [bits(0x3ff371a7373aa9cb), bits(0xbc963aeabf42eae2)],
    [bits(0x3ff3dea64c123422), bits(0x3c8ada0911f09ebc)],
    [bits(0x3ff44e086061892d), bits(0x3c489b7a04ef80d0)],
    [bits(0x3ff4bfdad5362a27), bits(0x3c7d4397afec42e2)],
    [bits(0x3ff5342b569d4f82), bits(0xbc807abe1db13cad)],
    [bits(0x3ff5ab07dd485429), bits(0x3c96324c054647ad)],
    [bits(0x3ff6247eb03a5585), bits(0xbc9383c17e40b497)],
    [bits(0x3ff6a09e667f3bcd), bits(0xbc9bdd3413b26456)],
    [bits(0x3ff71f75e8ec5f74), bits(0xbc816e4786887a99)],
    [bits(0x3ff7a11473eb0187), bits(0xbc841577ee04992f)],
    [bits(0x3ff82589994cce13), bits(0xbc9d4c1dd41532d8)],
    [bits(0x3ff8ace5422aa0db), bits(0x3c96e9f156864b27)],
    [bits(0x3ff93737b0cdc5e5), bits(0xbc675fc781b57ebc)],
    [bits(0x3ff9c49182a3f090), bits(0x3c7c7c46b071f2be)],
    [bits(0x3ffa5503b23e255d), bits(0xbc9d2f6edb8d41e1)],
    [bits(0x3ffae89f995ad3ad), bits(0x3c97a1cd345dcc81)],
    [bits(0x3ffb7f76f2fb5e47), bits(0xbc75584f7e54ac3b)],
    [bits(0x3ffc199bdd85529c), bits(0x3c811065895048dd)],
    [bits(0x3ffcb720dcef9069), bits(0x3c7503cbd1e949db)],
    [bits(0x3ffd5818dcfba487), bits(0x3c82ed02d75b3707)],
    [bits(0x3ffdfc97337b9b5f), bits(0xbc91a5cd4f184b5c)],
    [bits(0x3ffea4afa2a490da), bits(0xbc9e9c23179c2893)],
    [bits(0x3fff50765b6e4540), bits(0x3c99d3e12dd8a18b)],
];

/// ln2 to a multiple of 2^-42.
pub(crate) const LN2_HEAD: f64 = bits(0x3fe62e42fefa3800); // 0.6931471805598903
/// ln2 minus `LN2_HEAD`.
pub(crate) const LN2_TAIL: f64 = bits(0x3d2ef35793c76730); // 5.497923018708371e-14
/// 1/3.
pub(crate) const LN_C3: f64 = bits(0x3fd5555555555555); // 0.3333333333333333
/// minus 1/4.
pub(crate) const LN_C4: f64 = bits(0xbfd0000000000000); // -0.25
/// 1/5.
pub(crate) const LN_C5: f64 = bits(0x3fc999999999999a); // 0.2
/// minus 1/6.
pub(crate) const LN_C6: f64 = bits(0xbfc5555555555555); // -0.16666666666666666
/// 1/7.
pub(crate) const LN_C7: f64 = bits(0x3fc2492492492492); // 0.14285714285714285
/// minus 1/8.
pub(crate) const LN_C8: f64 = bits(0xbfc0000000000000); // -0.125
/// 1/9.
pub(crate) const LN_C9: f64 = bits(0x3fbc71c71c71c71c); // 0.1111111111111111
/// Per mantissa interval: a short reciprocal c (a multiple of 1/512) of its centre,
/// then -ln(c) as a multiple of 2^-42 and the rest.
pub(crate) static LN_TABLE: [[f64; 3]; 128] = [
    [bits(0x3ff7380000000000), bits(0xbfd7d4eeef5ef000), bits(0x3d2c9018f8f27d8f)],
    [bits(0x3ff7100000000000), bits(0xbfd7664e1239e000), bits(0x3d30c4fb6aeb27af)],
    [bits(0x3ff6f00000000000), bits(0xbfd70d42e2789000), bits(0xbd21aead337ee287)],
    [bits(0x3ff6d00000000000), bits(0xbfd6b3bb22359000), bits(0xbd30f6257a933268)],
    [bits(0x3ff6b00000000000), bits(0xbfd659b57303e000), bits(0xbd1f281db0af8efc)],
    [bits(0x3ff6900000000000), bits(0xbfd5ff3070a79000), bits(0xbd2e9e439f105039)],
    [bits(0x3ff6700000000000), bits(0xbfd5a42ab0f4d000), bits(0x3cde63af2df7ba69)],
    [bits(0x3ff6500000000000), bits(0xbfd548a2c3add000), bits(0xbd23167e63081cf7)],
    [bits(0x3ff6300000000000), bits(0xbfd4ec9732600000), bits(0xbd234d7aaf04d104)],
    [bits(0x3ff6180000000000), bits(0xbfd4a7373ced0000), bits(0x3d39a234ebf35449)],
    [bits(0x3ff5f80000000000), bits(0xbfd44a41b463c000), bits(0xbd31ee28f37cf612)],
    [bits(0x3ff5d80000000000), bits(0xbfd3ecc460ef6000), bits(0x3d06028627c1300f)],
    [bits(0x3ff5b80000000000), bits(0xbfd38ebdb38ed000), bits(0xbd290582e67d4ca0)],
    [bits(0x3ff5a00000000000), bits(0xbfd347dd9a988000), bits(0x3d25594dd4c58092)],
    [bits(0x3ff5800000000000), bits(0xbfd2e8e2bae12000), bits(0x3d267b1e99b72bd8)],
    [bits(0x3ff5600000000000), bits(0xbfd2895a13de8000), bits(0xbd3a8d7ad24c13f0)],
    [bits(0x3ff5480000000000), bits(0xbfd241558bfd1000), bits(0xbd300fff3228fcad)],
    [bits(0x3ff5280000000000), bits(0xbfd1e0d0c3371000), bits(0xbd3af8f2a9b0d4a0)],
    [bits(0x3ff5100000000000), bits(0xbfd1980d2dd42000), bits(0xbd2b7b3a7a361c9a)],
    [bits(0x3ff4f00000000000), bits(0xbfd136870293b000), bits(0x3d3d3e8499d67123)],
    [bits(0x3ff4d80000000000), bits(0xbfd0ed005f658000), bits(0x3d22dc75285aa803)],
    [bits(0x3ff4c00000000000), bits(0xbfd0a324e2739000), bits(0xbd0c6bee7ef4030e)],
    [bits(0x3ff4a00000000000), bits(0xbfd0402594b4d000), bits(0xbcf036b89ef42d7f)],
    [bits(0x3ff4880000000000), bits(0xbfcfeb0233e60000), bits(0xbd2f316e32d5e8c7)],
    [bits(0x3ff4700000000000), bits(0xbfcf550a564b8000), bits(0x3d2323e3a09202fe)],
    [bits(0x3ff4500000000000), bits(0xbfce8c0252aa6000), bits(0x3d26805b80e8e6ff)],
    [bits(0x3ff4380000000000), bits(0xbfcdf46c0c722000), bits(0xbd3a5e82b0b79039)],
    [bits(0x3ff4200000000000), bits(0xbfcd5c216b4fc000), bits(0x3d21ba91bbca681b)],
    [bits(0x3ff4080000000000), bits(0xbfccc320c0176000), bits(0xbd2409039a653794)],
    [bits(0x3ff3f00000000000), bits(0xbfcc2968558c2000), bits(0x3d2cfd73dee38a40)],
    [bits(0x3ff3d80000000000), bits(0xbfcb8ef670420000), bits(0xbd387533321788e0)],
    [bits(0x3ff3c00000000000), bits(0xbfcaf3c94e80c000), bits(0x3cba4e633fcd9066)],
    [bits(0x3ff3a80000000000), bits(0xbfca57df28244000), bits(0xbd3b99c8ca1d9abb)],
    [bits(0x3ff3900000000000), bits(0xbfc9bb362e7e0000), bits(0x3d21f2a8a1ce0ffc)],
    [bits(0x3ff3780000000000), bits(0xbfc91dcc8c340000), bits(0xbd37bc6abddeff46)],
    [bits(0x3ff3600000000000), bits(0xbfc87fa06520c000), bits(0xbd322120401202fc)],
    [bits(0x3ff3480000000000), bits(0xbfc7e0afd630c000), bits(0xbd139e7c1d8f1034)],
    [bits(0x3ff3300000000000), bits(0xbfc740f8f5404000), bits(0x3d30b66c99018aa1)],
    [bits(0x3ff3180000000000), bits(0xbfc6a079d0f7a000), bits(0xbd35a3f8448d14f5)],
    [bits(0x3ff3000000000000), bits(0xbfc5ff3070a7a000), bits(0x3d38586f183bebf2)],
    [bits(0x3ff2e80000000000), bits(0xbfc55d1ad4232000), bits(0xbd3add94dda647e8)],
    [bits(0x3ff2d80000000000), bits(0xbfc4f099f4a24000), bits(0x3d3e9bf2fafeaf27)],
    [bits(0x3ff2c00000000000), bits(0xbfc44d2b6ccb8000), bits(0x3d170cc16135783c)],
    [bits(0x3ff2a80000000000), bits(0xbfc3a8eb2d31a000), bits(0xbd1bafb77d5d503e)],
    [bits(0x3ff2900000000000), bits(0xbfc303d718e48000), bits(0x3cd680b5ce3ecb05)],
    [bits(0x3ff2800000000000), bits(0xbfc29552f8200000), bits(0x3d35b967f4471dfc)],
    [bits(0x3ff2680000000000), bits(0xbfc1eed90e2dc000), bits(0xbd1615637097648f)],
    [bits(0x3ff2500000000000), bits(0xbfc1478584674000), bits(0xbd1563451027c750)],
    [bits(0x3ff2400000000000), bits(0xbfc0d77e7cd08000), bits(0xbd3cb2cd2ee2f482)],
    [bits(0x3ff2280000000000), bits(0xbfc02ebb42bf4000), bits(0x3d15a8fa5ce00e5d)],
    [bits(0x3ff2180000000000), bits(0xbfbf7b79fec38000), bits(0x3d010987e897ed01)],
    [bits(0x3ff2000000000000), bits(0xbfbe27076e2b0000), bits(0x3d2a342c2af0003c)],
    [bits(0x3ff1f00000000000), bits(0xbfbd4313d66cc000), bits(0x3d29454379135713)],
    [bits(0x3ff1d80000000000), bits(0xbfbbeba818148000), bits(0x3d389b78b6df1f57)],
    [bits(0x3ff1c80000000000), bits(0xbfbb05b49bee4000), bits(0xbd0ff22c18f84a5e)],
    [bits(0x3ff1b00000000000), bits(0xbfb9ab4246204000), bits(0x3d28a64826787061)],
    [bits(0x3ff1a00000000000), bits(0xbfb8c345d6318000), bits(0xbd3b20f5acb42a66)],
    [bits(0x3ff1880000000000), bits(0xbfb765bf23a6c000), bits(0x3cfecbc035c4256a)],
    [bits(0x3ff1780000000000), bits(0xbfb67bb0726ec000), bits(0xbcef724b69ef5912)],
    [bits(0x3ff1680000000000), bits(0xbfb590cafdf00000), bits(0xbd3c284f5722abaa)],
    [bits(0x3ff1500000000000), bits(0xbfb42edcbea64000), bits(0xbd1bc0eeea7c9acd)],
    [bits(0x3ff1400000000000), bits(0xbfb341d7961bc000), bits(0xbd31d09299837610)],
    [bits(0x3ff1300000000000), bits(0xbfb253f62f0a0000), bits(0xbd3416f8fb69a701)],
    [bits(0x3ff1180000000000), bits(0xbfb0ed839b554000), bits(0x3d3901f46d48abb4)],
    [bits(0x3ff1080000000000), bits(0xbfaffae9119b8000), bits(0xbd2303374262c554)],
    [bits(0x3ff0f80000000000), bits(0xbfae19070c278000), bits(0x3d2fea4664629e86)],
    [bits(0x3ff0e80000000000), bits(0xbfac355dd0920000), bits(0xbd2f2ccc9abf8388)],
    [bits(0x3ff0d00000000000), bits(0xbfa95c830ec90000), bits(0x3d2c148297c5feb8)],
    [bits(0x3ff0c00000000000), bits(0xbfa77458f6330000), bits(0x3d3181dce586af09)],
    [bits(0x3ff0b00000000000), bits(0xbfa58a5bafc90000), bits(0x3d2b2b739570ad39)],
    [bits(0x3ff0a00000000000), bits(0xbfa39e87b9fe8000), bits(0xbd3eafd480ad9015)],
    [bits(0x3ff0900000000000), bits(0xbfa1b0d989240000), bits(0x3d33401e9ae889bb)],
    [bits(0x3ff0780000000000), bits(0xbf9d91a66c540000), bits(0xbd2e61f1658cfb9a)],
    [bits(0x3ff0680000000000), bits(0xbf99ace7551d0000), bits(0x3d2d75d97ec7c410)],
    [bits(0x3ff0580000000000), bits(0xbf95c45a51b90000), bits(0x3d263bb6216d87d8)],
    [bits(0x3ff0480000000000), bits(0xbf91d7f7eb9f0000), bits(0x3d14193a83fcc7a6)],
    [bits(0x3ff0380000000000), bits(0xbf8bcf712c740000), bits(0xbd1c25e097bd9771)],
    [bits(0x3ff0280000000000), bits(0xbf83e7295d260000), bits(0x3d2609c1ff29a114)],
    [bits(0x3ff0180000000000), bits(0xbf77ee11ebd80000), bits(0xbd0749d3c2d23a07)],
    [bits(0x3ff0000000000000), bits(0x0000000000000000), bits(0x0000000000000000)],
    [bits(0x3ff0000000000000), bits(0x0000000000000000), bits(0x0000000000000000)],
    [bits(0x3fefa00000000000), bits(0x3f882448a3880000), bits(0x3d34554412c584e0)],
    [bits(0x3fef600000000000), bits(0x3f9432a925980000), bits(0x3d098139928637fe)],
    [bits(0x3fef200000000000), bits(0x3f9c63d2ec150000), bits(0xbd35439ce030a687)],
    [bits(0x3feef00000000000), bits(0x3fa149e3e4008000), bits(0xbd32b98a9a4168fd)],
    [bits(0x3feeb00000000000), bits(0x3fa5715c4c040000), bits(0xbd38888ddfc47628)],
    [bits(0x3fee700000000000), bits(0x3fa9a187b5740000), bits(0xbd30c22e4ec4d90d)],
    [bits(0x3fee400000000000), bits(0x3faccb73cddd8000), bits(0x3d3965c36e09f5fe)],
    [bits(0x3fee000000000000), bits(0x3fb08598b59e4000), bits(0xbd17e5dd7009902c)],
    [bits(0x3fedd00000000000), bits(0x3fb2207b5c784000), bits(0x3d349d8cfc10c7bf)],
    [bits(0x3fed900000000000), bits(0x3fb4485e03dbc000), bits(0x3d3fad46e8d26ab7)],
    [bits(0x3fed600000000000), bits(0x3fb5e95a4d978000), bits(0x3d31cb7ce1d17171)],
    [bits(0x3fed200000000000), bits(0x3fb8197e2f410000), bits(0xbd3c0fe460d20041)],
    [bits(0x3fecf00000000000), bits(0x3fb9c0c32d4d4000), bits(0xbd3ab7c09e838668)],
    [bits(0x3fecc00000000000), bits(0x3fbb6ac88dad4000), bits(0x3d3b1bdff50225c7)],
    [bits(0x3fec900000000000), bits(0x3fbd179788218000), bits(0x3d336433b5efbeed)],
    [bits(0x3fec600000000000), bits(0x3fbec739830a0000), bits(0x3d311fcba80cdd10)],
    [bits(0x3fec200000000000), bits(0x3fc08598b59e4000), bits(0xbd27e5dd7009902c)],
    [bits(0x3febf00000000000), bits(0x3fc160c8024b2000), bits(0x3d2ec2d2a9009e3d)],
    [bits(0x3febc00000000000), bits(0x3fc23d712a49c000), bits(0x3d100d238fd3df5c)],
    [bits(0x3feb900000000000), bits(0x3fc31b994d3a4000), bits(0x3d3f098ee3a50810)],
    [bits(0x3feb600000000000), bits(0x3fc3fb45a5992000), bits(0x3d319713c0cae559)],
    [bits(0x3feb300000000000), bits(0x3fc4dc7b897bc000), bits(0x3d0c79b60ae1ff0f)],
    [bits(0x3feb100000000000), bits(0x3fc5737cc9018000), bits(0x3d39baa7a6b887f6)],
    [bits(0x3feae00000000000), bits(0x3fc6574ebe8c2000), bits(0xbd398c1d34f0f462)],
    [bits(0x3feab00000000000), bits(0x3fc73cb9074fe000), bits(0xbd3d66a90d0005a6)],
    [bits(0x3fea800000000000), bits(0x3fc823c16551a000), bits(0x3d1e0ddb9a631e83)],
    [bits(0x3fea500000000000), bits(0x3fc90c6db9fcc000), bits(0xbd1935f57718d7ca)],
    [bits(0x3fea300000000000), bits(0x3fc9a8778deba000), bits(0x3d3470fa3efec390)],
    [bits(0x3fea000000000000), bits(0x3fca93ed3c8ae000), bits(0xbd28724350562169)],
    [bits(0x3fe9d00000000000), bits(0x3fcb811730b82000), bits(0x3d1e90683b9cd768)],
    [bits(0x3fe9b00000000000), bits(0x3fcc2028ab180000), bits(0xbd292e0ee55c7ac6)],
    [bits(0x3fe9800000000000), bits(0x3fcd1037f2656000), bits(0xbd084a7e75b6f6e4)],
    [bits(0x3fe9600000000000), bits(0x3fcdb13db0d48000), bits(0x3d32806a847527e6)],
    [bits(0x3fe9300000000000), bits(0x3fcea4449f04a000), bits(0x3d35e91663732a36)],
    [bits(0x3fe9100000000000), bits(0x3fcf474b134e0000), bits(0xbd3bae49f1df7b5e)],
    [bits(0x3fe8e00000000000), bits(0x3fd01eae5626c000), bits(0x3d3a43dcfade85ae)],
    [bits(0x3fe8c00000000000), bits(0x3fd07138604d6000), bits(0xbd3e76324e912b17)],
    [bits(0x3fe8a00000000000), bits(0x3fd0c42d67616000), bits(0x3d27188b163ceae9)],
    [bits(0x3fe8700000000000), bits(0x3fd14167ef367000), bits(0x3d3e0c07824daaf5)],
    [bits(0x3fe8500000000000), bits(0x3fd1956d3b9bc000), bits(0x3d27d2f73ad1aa14)],
    [bits(0x3fe8300000000000), bits(0x3fd1e9e16788a000), bits(0xbd382eaed3c8b65e)],
    [bits(0x3fe8000000000000), bits(0x3fd269621134e000), bits(0xbd31b61f10522625)],
    [bits(0x3fe7e00000000000), bits(0x3fd2bef07cdc9000), bits(0x3d2a9cfa4a5004f4)],
    [bits(0x3fe7c00000000000), bits(0x3fd314f1e1d36000), bits(0xbd28e27ad3213cb8)],
    [bits(0x3fe7a00000000000), bits(0x3fd36b6776be1000), bits(0x3d116ecdb0f177c8)],
    [bits(0x3fe7800000000000), bits(0x3fd3c25277333000), bits(0x3d183b54b606bd5c)],
    [bits(0x3fe7500000000000), bits(0x3fd44591e053a000), bits(0xbd06e95892923d88)],
];
