/* edgeinfer/csrc/grids.c: the codebooks of IQ1, IQ2 and IQ3, spread out when the library is loaded.
 *
 * Their points, read as numbers whose lowest digit is the first coordinate, rise; so each is stored as the gaps
 * between them: a to z say 1 to 26 further, + says 26 further and no point there. The numbers of IQ2 are all even and
 * halved first. edgeinfer/quant/grids.py holds the same letters for NumPy.
 */
#include "grids.h"

#include "base.h"

static const char gaps_iq2_xxs[] =
    "aaaaaaacabaaaccbacacfdacbgoffairmaceacabfeacfcabfgjaelaioicbacfbacakll+be+iacedifcbgcfidexeycfbfjupqg+hacinmb+hw"
    "vackhdaydxa+nacigtnj+vlfx++kzaccbaccdbeaciindbldldeocfrhke+d+oacibyube+bpicbcarclmw+i+nal+ksuecp+d+d+mcilot+borb"
    "+qaw++o++++cacjnnff+f+jacbgirpqkjis+o+r+kcfcwkt+cyje+r+++lv++uqko+k+v+++++bx";
static const char gaps_iq2_xs[] =
    "aaaaaaaaaaaaabaaaaaaabacaaababaeaaaaaaaaaacaaabaccbaciaaabaceacbgdjaaaaaaabacaaabaabeaciaaabaceacednacgbanlaaaaa"
    "acbcaccfidaacincjicvbeaaaaaaabacaaabacdaaciaaabaceacifagaabiiraaabaceabafcnaci+afkxacahfjkbw+huaaaaaaaceaciieaci"
    "chpjqlbacha+anepfh+dbcaekjg+cflfsbajaaaaaaabacaaaaaacbcaciaaabaceacibhdacaga+aaaababaeacifhacfcvedkcwacibddqejch"
    "p+maaabaccbacinacbgazoyaacedieidcxctpkdfhdqnea++clacifdfja+ygohg+libv+rzy+fqdqaaabacdaaciakaaaabiecsirahcbacaagi"
    "hjowjsnchkeakd+vqcdebacighljn+kjjbmcc+fsav+sts+dprabaedwwcqbabjnirt++tjjeabxcc+aawash";
static const char gaps_iq2_s[] =
    "aaaaaaaaaaaaabaaaaaaabaaaaaaabacbbaaaaaaaabacaaabaaaababacaacacaaabacdaaaaabgbbbddaaaaaaabaaaaaaaaaaaaaaacaaaaba"
    "bacaaaaaaaaababaaaaaaabacaaabaceaaaabgbabaceaciaaabaaaabbaaaaaaaabacbdgaacaaabdbabacedieadbaeqfaaaaaaabaabaaabaa"
    "aaaaabaabbabacaaaaaaaaaaaabaaaaaaabacaaabahababcacbcahaciaaabaaaababaaaaaaabacaaabaceaaaaaaabacaaabaceacibabacea"
    "cimaaaaababdaaabacealaaabaceachkecigtaaabaaaabbaacaadcdbgaacaacdaacaceacidfbabclahbaaaababacaaabaceacibabaceacgb"
    "nacihsbcahacmiaac+ckfnfajaaaaaaaaaaabaaaaaaaaaaacacbabacaaabaaaaaacaaaaaaabacaaabaceacaaaccbabacealaaaaaaaaaaaab"
    "aaaaaaabacaaabaceaaaaaaabacaaabacdaaciaaabaceacikcabaaaabacaaabacfciaaabaceaciggaci+aaaabaaaaaaabaaaaaaabacaaaba"
    "haaaaaaabacaaabaceacibabaceachanaaaaaaabacaaabaceaciaaabaceacinacgb+aaaabaceacdenaci+ahujbaabaaabacbabacfciaaaba"
    "ceacihgcigpdbabaceacinacidhgh+ghactjfm+pvdaaabababcacaaabdbcahabaaaabacaaabahachabbaahacwaaaaaaabdaaabaceaciaaab"
    "aceacidjacha+abcahacsdalkzkafidabaaaaccaaabaceacibcahacdsaciybaaabaceaciggaciubdphqacgbzaqb++aibbbdcaacscnkqcfba"
    "obahbaciqgch+yzhywjnaeabrj";
static const char gaps_iq3_xxs[] =
    "abbebdabgiybdbebgdcbgklhbbegbgbdjfndfabk+isteklbdfsp+ywtdbunpbebgbebbkaxbggb+ubebgg+hfbnimpkd+i+ndrsl++yn+fbgbeb"
    "dci+ebbcbgg+adahbgfabmamtgd+rd+gnxtj+a++qbkw+bgbgbumefbnikb+abemupor++iosffl+a+eru+nutknbld++ytoapfq+d+e+kk+gnu+"
    "+ycbn+xwwhfpw+en+fh+o+ckd+ihw+++a+rn+xpbn+c+f+d+k+jf++r+g+k+w+nn+xbbarp+rj+p+aevmnu+gp+ebr++p";
static const char gaps_iq3_s[] =
    "aaacbaaabbbadfebcbbbebgccaaabdadccdbdgmdefadbacccdcdfcbbbmchfdcbgbcfdbmbdckdbcffcfojblbdefdboekcbnqogbblbdemdtaa"
    "bdabbbabgcbnbcifabcbdegcfgbnfbjcbadffcjcjgccacffadeqfkbebmbgdbdugcfgbo+mdcmb+abebgldqfhabbbabbbcbdabgbbcbmacbcbf"
    "cdccdcfgxccjbegbjdjcdbcdibebgfnkficgcdycgeimakmhbej+bdtdmbkezgbbbcgbbebcbjfhbbgebmpjdbjfjblygdebdaibdfnhfedgqfdm"
    "gbkejjmss+fbmbk+idffdccggpjebbgfeffdtbeedjeocflebebgd+ibrkaylbj+gyqtxekkfyfdfndcclfebbegi+ffijefmweaomelffcljl+j"
    "lsb++c+fbn++cbblbuppg+cvrfkefhleo++anoncytu+a+ob++adciblblfpgkob+bcdfcgqyxcnvdfex+pp+fw+m";
static const char gaps_iq1[] =
    "abbbbbcebdbefbbhebdbeebdbdafbbbaefdbdbdbbbagfbbhebdbeebdbeffedbbdbbccbbdbkbbhfffddaofffbaahbbhbddaabaabbbbbbbicb"
    "bbbaabndlbfbbbcadbffbdkbdbeebdbefdhebdbeebdbefbdeafhacfbdlbbbfebdbeebdbeffccebbbbeebdbjabdeafbfdbdbaclbbecfbbbbb"
    "bbdbdfdaaaaaabbdhhbfbpbbheebdbbbdbhfbbhfdbeabacdecaabbbaabdbbfdbcabaabbacdbdbbaabbbbbbbbaaeaaaababbaabbbaabbaaba"
    "abaabbfbaahaabbddbaabbbcaaacbabaafccbhdldhfbbbbdbbaabbbffbjnbbdbcgaabdbaabaaddhcabbddbiggbgbbbbbbddbffdcjbdbeebb"
    "bbeffccebdbeebbbbefbdfgadfbbbbaaheebffebbcebdbefdbffebbcebdbehbbfhaabdbbbfhfbdcclfffbdbdbacdbbjbcabbbbbbfebeffff"
    "eafebdhjbdbeebdbefbjebdbjbdbhcbdfjbdbfbbbfeebeaebdbjbdbefdbfebdbeebdbefdhldbbbbbbpdcddabbbdbaabbdbfbbbbaabaebbbb"
    "bdbbeaakfbbhfjbdddiejflcifbbbbaaeabbbbdbbbbeafcabdbbaabbddbbaabbabaaaacbaabdaabdbaabaebbbcceabbbbdbbbbcaababdbbd"
    "cddafbbhfcdegebdbdbbbffbbbffcacacabdbbdddbaaaabbbbacfbdbaadbbbppbbfbbddnjfbaabdbdbbdbdbdbaabfbhbfbcadbfbaabbaaaa"
    "bdaabbbaabbaaaaaaaabbaabdbfbaabbddbdfbdbbhbdbbaabdbiebbcadiafbaaaaccbbbbaabaaabaaaaabaaaabbfbbbaabcbadbaaaabbaaa"
    "aababbaabbaaaaaaabaaaaaaaaaabaaaaabbacaaabaaaacbaabbaaabaacbababaaaaaaaccaaaaaaaaaaaaabbacdbaaaabcdcbaaaeaabbdbd"
    "gebbbbaaaabbaagebbbbdfcabdbbaabffbaabbaaaaaaaabbaabccccbaaaafhcgdadabfbaccaaadbbbbgcbaabblhbbfhfdaabbbbbcmhfbbbd"
    "bfacbfcccabfacdecbfdbldbkadhaacmfdhoabacbdbbbbbbbbaabaabbhacbbaaaabbbdfbbbcabnaabbabaabcbaabgbabcabacbaaeefeeaab"
    "dbbbbaaabadbcbbddbaabcbcobffjbdbfffehebfdfbbbbacaadbaabbddcaeefbacldambdbdbbdacggcbfdbdbjbdbeeabbbfebdbeebdbefbb"
    "bffbdbbbaaaebbfcebbfebdbeebdbkbdfebdbeebdbmdlbgcdbbdndlfdbdfbbacbdbaabaeaabbbbbbbbbhndbffbdaadcabdcefgdfbdbeebdb"
    "bcfbdfcbbdbeebdbeaebbhfbbbbbbdbbjjbfebdbeebdbefbbmbdbeebdbefdaaffdbfbbhaefbbbffbbbbdbbbbbbbdeabaabdbhbfbbdbbbffb"
    "dfhbbbbbbhbfhbkcbbddbhdhbbaaaabaabhbfaabdfbdbbaabaabcccabbaabbaaaaaaaabbaabccbdaaaabaabbbbbbfdcbebfbacababfbeada"
    "caahbbfjbffddbbacdaifdbfhbbbbbbbaabbdbbbbbbaabdbacbbfbbdbdhiihbbbdbdlfbaambdbeebdbefbbbkbdbeebdbeccbbbaobccbbbbj"
    "ebcbmdbagddbefdbfebdbeebdbqffbfcabbbcaaaf+bbbbbbhbdbfbaabfdbbaabdbbpfdcbchbccbaacblddabcbbdbdbjbdbkbbbkbdbeebdbe"
    "hdccfhddbdbkembdbjbdbkbbmbdbeebdb";

ei_grid_tables ei_grids;

/* Call point(to, i, number) for each point of the letters. */
typedef void (*point_fn)(void *to, int32_t i, int32_t number);

static void each_point(const char *gaps, int32_t factor, point_fn point, void *to) {
    int32_t i = 0, number = -1;
    for (; *gaps; gaps++) {
        if (*gaps == '+')
            number += 26;
        else
            point(to, i++, factor * (number += *gaps - 'a' + 1));
    }
}

/* 8 bytes, each one of three */
static uint64_t three_levels(int32_t number, const uint8_t levels[3]) {
    uint64_t bytes = 0;
    for (int k = 0; k < 8; k++, number /= 3) bytes |= (uint64_t)levels[number % 3] << (8 * k);
    return bytes;
}
static uint32_t eight_levels(int32_t number, const uint8_t levels[8]) {
    uint32_t bytes = 0;
    for (int k = 0; k < 4; k++, number /= 8) bytes |= (uint32_t)levels[number % 8] << (8 * k);
    return bytes;
}

static void point_iq2(void *to, int32_t i, int32_t number) {
    static const uint8_t levels[3] = {8, 25, 43};
    ((uint64_t *)to)[i] = three_levels(number, levels);
}
static void point_iq1(void *to, int32_t i, int32_t number) {
    static const uint8_t levels[3] = {EI_IQ1_ZERO - 9, EI_IQ1_ZERO - 1, EI_IQ1_ZERO + 7};
    ((uint64_t *)to)[i] = three_levels(number, levels);
}
static void point_iq3_xxs(void *to, int32_t i, int32_t number) {
    static const uint8_t levels[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    ((uint32_t *)to)[i] = eight_levels(number, levels);
}
static void point_iq3_s(void *to, int32_t i, int32_t number) {
    static const uint8_t levels[8] = {1, 3, 5, 7, 9, 11, 13, 15};
    ((uint32_t *)to)[i] = eight_levels(number, levels);
}

static uint64_t sign_mask(int32_t signs) {
    uint64_t bytes = 0;
    for (int k = 0; k < 8; k++) bytes |= ((signs >> k) & 1 ? 0xffull : 0) << (8 * k);
    return bytes;
}

/* A few tens of microseconds, before anyone can ask: no lock, and no table of 33 kB in the source. */
__attribute__((constructor)) static void spread_grids(void) {
    ei_grid_tables *g = &ei_grids;
    each_point(gaps_iq2_xxs, 2, point_iq2, g->iq2_xxs);
    each_point(gaps_iq2_xs, 2, point_iq2, g->iq2_xs);
    each_point(gaps_iq2_s, 2, point_iq2, g->iq2_s);
    each_point(gaps_iq3_xxs, 1, point_iq3_xxs, g->iq3_xxs);
    each_point(gaps_iq3_s, 1, point_iq3_s, g->iq3_s);
    each_point(gaps_iq1, 1, point_iq1, g->iq1);
    for (int32_t s = 0; s < 256; s++) g->signs[s] = sign_mask(s);
    for (int32_t s = 0; s < 128; s++) g->signs_of_7[s] = sign_mask(s | (__builtin_popcount((unsigned)s) % 2) << 7);
}
