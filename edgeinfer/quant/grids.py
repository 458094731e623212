"""Hold the codebooks of the IQ1, IQ2 and IQ3 formats: lists of points that a code is an index of.

A point has 8 coordinates of 3 levels (IQ1, IQ2) or 4 of 8 levels (IQ3). Read as digits, the first
the lowest, it is a number, and every codebook lists its points by rising number: so a codebook is
stored as the gaps between them, one letter each. a to z say 1 to 26 further; + says 26 further and
no point there. IQ2's points all have an even number, which is halved first. csrc/grids.c
holds the same letters for C; the tests compare what the two make of them.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

_GAPS = {
    "IQ2_XXS": (
        "aaaaaaacabaaaccbacacfdacbgoffairmaceacabfeacfcabfgjaelaioicbacfbacakll+be+iacedifcbgcfid"
        "exeycfbfjupqg+hacinmb+hwvackhdaydxa+nacigtnj+vlfx++kzaccbaccdbeaciindbldldeocfrhke+d+oac"
        "ibyube+bpicbcarclmw+i+nal+ksuecp+d+d+mcilot+borb+qaw++o++++cacjnnff+f+jacbgirpqkjis+o+r+"
        "kcfcwkt+cyje+r+++lv++uqko+k+v+++++bx"
    ),
    "IQ2_XS": (
        "aaaaaaaaaaaaabaaaaaaabacaaababaeaaaaaaaaaacaaabaccbaciaaabaceacbgdjaaaaaaabacaaabaabeaci"
        "aaabaceacednacgbanlaaaaaacbcaccfidaacincjicvbeaaaaaaabacaaabacdaaciaaabaceacifagaabiiraa"
        "abaceabafcnaci+afkxacahfjkbw+huaaaaaaaceaciieacichpjqlbacha+anepfh+dbcaekjg+cflfsbajaaaa"
        "aaabacaaaaaacbcaciaaabaceacibhdacaga+aaaababaeacifhacfcvedkcwacibddqejchp+maaabaccbacina"
        "cbgazoyaacedieidcxctpkdfhdqnea++clacifdfja+ygohg+libv+rzy+fqdqaaabacdaaciakaaaabiecsirah"
        "cbacaagihjowjsnchkeakd+vqcdebacighljn+kjjbmcc+fsav+sts+dprabaedwwcqbabjnirt++tjjeabxcc+a"
        "awash"
    ),
    "IQ2_S": (
        "aaaaaaaaaaaaabaaaaaaabaaaaaaabacbbaaaaaaaabacaaabaaaababacaacacaaabacdaaaaabgbbbddaaaaaa"
        "abaaaaaaaaaaaaaaacaaaababacaaaaaaaaababaaaaaaabacaaabaceaaaabgbabaceaciaaabaaaabbaaaaaaa"
        "abacbdgaacaaabdbabacedieadbaeqfaaaaaaabaabaaabaaaaaaabaabbabacaaaaaaaaaaaabaaaaaaabacaaa"
        "bahababcacbcahaciaaabaaaababaaaaaaabacaaabaceaaaaaaabacaaabaceacibabaceacimaaaaababdaaab"
        "acealaaabaceachkecigtaaabaaaabbaacaadcdbgaacaacdaacaceacidfbabclahbaaaababacaaabaceaciba"
        "baceacgbnacihsbcahacmiaac+ckfnfajaaaaaaaaaaabaaaaaaaaaaacacbabacaaabaaaaaacaaaaaaabacaaa"
        "baceacaaaccbabacealaaaaaaaaaaaabaaaaaaabacaaabaceaaaaaaabacaaabacdaaciaaabaceacikcabaaaa"
        "bacaaabacfciaaabaceaciggaci+aaaabaaaaaaabaaaaaaabacaaabahaaaaaaabacaaabaceacibabaceachan"
        "aaaaaaabacaaabaceaciaaabaceacinacgb+aaaabaceacdenaci+ahujbaabaaabacbabacfciaaabaceacihgc"
        "igpdbabaceacinacidhgh+ghactjfm+pvdaaabababcacaaabdbcahabaaaabacaaabahachabbaahacwaaaaaaa"
        "bdaaabaceaciaaabaceacidjacha+abcahacsdalkzkafidabaaaaccaaabaceacibcahacdsaciybaaabaceaci"
        "ggaciubdphqacgbzaqb++aibbbdcaacscnkqcfbaobahbaciqgch+yzhywjnaeabrj"
    ),
    "IQ3_XXS": (
        "abbebdabgiybdbebgdcbgklhbbegbgbdjfndfabk+isteklbdfsp+ywtdbunpbebgbebbkaxbggb+ubebgg+hfbn"
        "impkd+i+ndrsl++yn+fbgbebdci+ebbcbgg+adahbgfabmamtgd+rd+gnxtj+a++qbkw+bgbgbumefbnikb+abem"
        "upor++iosffl+a+eru+nutknbld++ytoapfq+d+e+kk+gnu++ycbn+xwwhfpw+en+fh+o+ckd+ihw+++a+rn+xpb"
        "n+c+f+d+k+jf++r+g+k+w+nn+xbbarp+rj+p+aevmnu+gp+ebr++p"
    ),
    "IQ3_S": (
        "aaacbaaabbbadfebcbbbebgccaaabdadccdbdgmdefadbacccdcdfcbbbmchfdcbgbcfdbmbdckdbcffcfojblbd"
        "efdboekcbnqogbblbdemdtaabdabbbabgcbnbcifabcbdegcfgbnfbjcbadffcjcjgccacffadeqfkbebmbgdbdu"
        "gcfgbo+mdcmb+abebgldqfhabbbabbbcbdabgbbcbmacbcbfcdccdcfgxccjbegbjdjcdbcdibebgfnkficgcdyc"
        "geimakmhbej+bdtdmbkezgbbbcgbbebcbjfhbbgebmpjdbjfjblygdebdaibdfnhfedgqfdmgbkejjmss+fbmbk+"
        "idffdccggpjebbgfeffdtbeedjeocflebebgd+ibrkaylbj+gyqtxekkfyfdfndcclfebbegi+ffijefmweaomel"
        "ffcljl+jlsb++c+fbn++cbblbuppg+cvrfkefhleo++anoncytu+a+ob++adciblblfpgkob+bcdfcgqyxcnvdfe"
        "x+pp+fw+m"
    ),
    "IQ1": (
        "abbbbbcebdbefbbhebdbeebdbdafbbbaefdbdbdbbbagfbbhebdbeebdbeffedbbdbbccbbdbkbbhfffddaofffb"
        "aahbbhbddaabaabbbbbbbicbbbbaabndlbfbbbcadbffbdkbdbeebdbefdhebdbeebdbefbdeafhacfbdlbbbfeb"
        "dbeebdbeffccebbbbeebdbjabdeafbfdbdbaclbbecfbbbbbbbdbdfdaaaaaabbdhhbfbpbbheebdbbbdbhfbbhf"
        "dbeabacdecaabbbaabdbbfdbcabaabbacdbdbbaabbbbbbbbaaeaaaababbaabbbaabbaabaabaabbfbaahaabbd"
        "dbaabbbcaaacbabaafccbhdldhfbbbbdbbaabbbffbjnbbdbcgaabdbaabaaddhcabbddbiggbgbbbbbbddbffdc"
        "jbdbeebbbbeffccebdbeebbbbefbdfgadfbbbbaaheebffebbcebdbefdbffebbcebdbehbbfhaabdbbbfhfbdcc"
        "lfffbdbdbacdbbjbcabbbbbbfebeffffeafebdhjbdbeebdbefbjebdbjbdbhcbdfjbdbfbbbfeebeaebdbjbdbe"
        "fdbfebdbeebdbefdhldbbbbbbpdcddabbbdbaabbdbfbbbbaabaebbbbbdbbeaakfbbhfjbdddiejflcifbbbbaa"
        "eabbbbdbbbbeafcabdbbaabbddbbaabbabaaaacbaabdaabdbaabaebbbcceabbbbdbbbbcaababdbbdcddafbbh"
        "fcdegebdbdbbbffbbbffcacacabdbbdddbaaaabbbbacfbdbaadbbbppbbfbbddnjfbaabdbdbbdbdbdbaabfbhb"
        "fbcadbfbaabbaaaabdaabbbaabbaaaaaaaabbaabdbfbaabbddbdfbdbbhbdbbaabdbiebbcadiafbaaaaccbbbb"
        "aabaaabaaaaabaaaabbfbbbaabcbadbaaaabbaaaaababbaabbaaaaaaabaaaaaaaaaabaaaaabbacaaabaaaacb"
        "aabbaaabaacbababaaaaaaaccaaaaaaaaaaaaabbacdbaaaabcdcbaaaeaabbdbdgebbbbaaaabbaagebbbbdfca"
        "bdbbaabffbaabbaaaaaaaabbaabccccbaaaafhcgdadabfbaccaaadbbbbgcbaabblhbbfhfdaabbbbbcmhfbbbd"
        "bfacbfcccabfacdecbfdbldbkadhaacmfdhoabacbdbbbbbbbbaabaabbhacbbaaaabbbdfbbbcabnaabbabaabc"
        "baabgbabcabacbaaeefeeaabdbbbbaaabadbcbbddbaabcbcobffjbdbfffehebfdfbbbbacaadbaabbddcaeefb"
        "acldambdbdbbdacggcbfdbdbjbdbeeabbbfebdbeebdbefbbbffbdbbbaaaebbfcebbfebdbeebdbkbdfebdbeeb"
        "dbmdlbgcdbbdndlfdbdfbbacbdbaabaeaabbbbbbbbbhndbffbdaadcabdcefgdfbdbeebdbbcfbdfcbbdbeebdb"
        "eaebbhfbbbbbbdbbjjbfebdbeebdbefbbmbdbeebdbefdaaffdbfbbhaefbbbffbbbbdbbbbbbbdeabaabdbhbfb"
        "bdbbbffbdfhbbbbbbhbfhbkcbbddbhdhbbaaaabaabhbfaabdfbdbbaabaabcccabbaabbaaaaaaaabbaabccbda"
        "aaabaabbbbbbfdcbebfbacababfbeadacaahbbfjbffddbbacdaifdbfhbbbbbbbaabbdbbbbbbaabdbacbbfbbd"
        "bdhiihbbbdbdlfbaambdbeebdbefbbbkbdbeebdbeccbbbaobccbbbbjebcbmdbagddbefdbfebdbeebdbqffbfc"
        "abbbcaaaf+bbbbbbhbdbfbaabfdbbaabdbbpfdcbchbccbaacblddabcbbdbdbjbdbkbbbkbdbeebdbehdccfhdd"
        "bdbkembdbjbdbkbbmbdbeebdb"
    ),
}

# The values of the levels. IQ1's are eighths: a shift of one eighth up or down comes on top.
_LEVELS = {
    "IQ2_XXS": (8, 25, 43),
    "IQ2_XS": (8, 25, 43),
    "IQ2_S": (8, 25, 43),
    "IQ3_XXS": (4, 12, 20, 28, 36, 44, 52, 62),
    "IQ3_S": (1, 3, 5, 7, 9, 11, 13, 15),
    "IQ1": (-8, 0, 8),
}


@cache
def grid(name: str) -> npt.NDArray[np.int8]:
    """Return a codebook, (points, coordinates) int8; IQ1 is that of IQ1_S and IQ1_M."""
    letters = np.frombuffer(_GAPS[name].encode(), np.uint8).astype(np.int64)
    is_point = letters != ord("+")
    numbers = np.cumsum(np.where(is_point, letters - (ord("a") - 1), 26))[is_point] - 1
    if name.startswith("IQ2"):
        numbers *= 2
    levels = np.array(_LEVELS[name], np.int8)
    n_coordinates = 8 if len(levels) == 3 else 4
    points: npt.NDArray[np.int8] = levels[
        numbers[:, None] // len(levels) ** np.arange(n_coordinates) % len(levels)
    ]
    points.flags.writeable = False
    return points
