"""
Writes train.txt, dev.txt and test.txt beside itself: sentences of newspapers and stories in the
columns of CoNLL-2003, with persons, places, organisations and others (nationalities, languages,
works) tagged in IOB1. The words, names and sentence frames were made for this project.
`python examples/ner/make.py`
"""

import random
import re
from collections.abc import Iterator
from pathlib import Path

SIZES = {"train": 450, "dev": 100, "test": 150}
SHARES = {
    "train": 0.55,
    "dev": 0.15,
    "test": 0.3,
}  # of every list of names; no name is in two files
SENTENCES_PER_DOCUMENT = 15
OWN_FRAMES = 0.25  # share of the sentences whose frame is only in the test split, or not in it


def parts(text: str) -> list[str]:
    """Split a text at bars and line ends."""
    return re.split(r"[|\n]", text.strip())


FIRST_NAMES = """
Adam Agnes Albert Alfred Alice Amelia Andrew Ann Anna Anthony Archibald Arthur Barbara Benjamin
Bertha Bertram Blanche Caroline Catherine Cecilia Charles Charlotte Clara Clement Constance
Cornelius Daniel David Deborah Diana Dorothea Edgar Edith Edmund Edward Eleanor Eliza Elizabeth
Ellen Emily Emma Ernest Esther Eustace Evelyn Fanny Felix Flora Frances Francis Frank Frederick
George Gertrude Gilbert Grace Guy Hannah Harold Harriet Harry Helen Henrietta Henry Herbert Hester
Horace Hugh Isaac Isabella James Jane Janet Jasper Jeremiah John Jonathan Joseph Josephine Julia
Julian Katherine Kate Laura Lawrence Leonard Lewis Lionel Louisa Lucy Lydia Mabel Margaret Maria
Marian Martha Martin Mary Matilda Matthew Maurice Michael Millicent Miriam Nancy Nathaniel Nicholas
Oliver Olivia Oscar Owen Patrick Paul Percy Peter Philip Phoebe Rachel Ralph Rebecca Reginald
Richard Robert Roger Roland Rosa Rose Rupert Ruth Sally Samuel Sarah Sidney Simon Solomon Sophia
Stephen Susan Sylvia Theodore Thomas Timothy Ursula Victor Violet Walter William Winifred
"""
SURNAMES = """
Abbott Allen Anderson Archer Armstrong Ashton Atkins Austen Bailey Baker Barker Barnes Barton Bates
Baxter Beaumont Bell Bennett Benson Blake Bowen Brand Briggs Brooke Brown Burton Butler Campbell
Carter Cartwright Chambers Clark Clifford Cole Collins Cooper Craig Crawford Crosby Cunningham
Curtis Dale Dalton Davies Dawson Dean Denham Dixon Douglas Drummond Duncan Edwards Elliott Ellis
Evans Farley Ferguson Fielding Fisher Fletcher Forbes Forster Foster Fraser Gardner Gibson Gordon
Graham Grant Granger Gray Green Griffiths Hale Hall Hamilton Harding Hargrave Harper Harris Harvey
Hastings Hawkins Henderson Herbert Hicks Hobson Holmes Hopkins Howard Hudson Hughes Hunter Hutton
Jackson Jenkins Johnson Jones Kemp Kennedy King Knight Lambert Langley Lawson Leigh Lloyd Long
Lowe Lucas Macdonald Marsh Marshall Mason Maxwell Middleton Miller Milton Mitchell Moore Morgan
Morris Morton Murray Nelson Newton Nichols Norris Osborne Page Palmer Parker Parsons Pearson Perkins
Phillips Porter Potter Powell Price Ramsay Randall Reed Reynolds Richards Riley Roberts Robinson
Rogers Russell Sanders Saunders Scott Sharp Shaw Simpson Sinclair Smith Spencer Stanley Stevens
Stewart Stone Sutton Talbot Tanner Taylor Temple Thompson Thornton Townsend Tracy Turner Tyler Vane
Vaughan Vincent Walker Wallace Walsh Ward Warner Watson Webb Wells Weston Wheeler White Wilkins
Williams Wilson Winter Wood Wright Wyatt Yates Young
"""
PLACES = """
Aberdeen|Africa|Alexandria|Algiers|America|Amsterdam|Antwerp|Arabia|Asia|Athens|Australia|Austria
Baltimore|Barcelona|Basle|Bath|Bavaria|Belfast|Belgium|Berlin|Bermuda|Birmingham|Bologna|Bombay
Bordeaux|Boston|Bradford|Brazil|Brighton|Bristol|Brittany|Brussels|Buckinghamshire|Burgundy|Cairo
Calais|Calcutta|California|Cambridge|Canada|Canterbury|Cape Town|Carlisle|Chelsea|Cheshire|Chester
Chicago|Chile|China|Cologne|Constantinople|Copenhagen|Cork|Cornwall|Cuba|Damascus|Denmark|Derby
Devonshire|Dorset|Dover|Dresden|Dublin|Durham|Edinburgh|Egypt|England|Essex|Europe|Exeter|Falmouth
Florence|France|Geneva|Genoa|Germany|Ghent|Gibraltar|Glasgow|Gloucester|Greece|Greenwich|Hamburg
Hampshire|Hampstead|Hanover|Harwich|Holland|Hungary|Hull|Iceland|India|Ireland|Italy|Jamaica|Japan
Java|Jerusalem|Kensington|Kent|Lancashire|Leeds|Leicester|Leipzig|Lima|Lincoln|Lisbon|Liverpool
London|Lyons|Madeira|Madras|Madrid|Malta|Manchester|Margate|Marseilles|Mexico|Milan|Montreal|Moscow
Munich|Naples|New England|New Orleans|New York|New Zealand|Newcastle|Nice|Norfolk|Normandy|North
Wales|Northampton|Norway|Norwich|Nottingham|Nova Scotia|Oxford|Oxfordshire|Palermo|Palestine|Paris
Peking|Persia|Peru|Philadelphia|Plymouth|Poland|Portsmouth|Portugal|Prague|Prussia|Quebec|Ramsgate
Reading|Rome|Rotterdam|Rouen|Russia|Saint Petersburg|Salisbury|Scotland|Seville|Sheffield
Shrewsbury|Siberia|Sicily|Somersetshire|South America|Southampton|Spain|Staffordshire|Suffolk|Surrey
Sussex|Sweden|Switzerland|Syria|Toronto|Toulon|Trieste|Turin|Turkey|Tuscany|Venice|Vienna|Virginia
Wales|Warsaw|Warwickshire|Washington|Waterloo|West Indies|Westminster|Winchester|Windsor|Worcester
York|Yorkshire|Zurich
"""
PEOPLES = """
African American Arab Asian Australian Austrian Bavarian Belgian Brazilian Breton British Canadian
Catholic Celtic Chilean Chinese Christian Cornish Cuban Danish Dutch Egyptian English European
Flemish French Gaelic German Greek Hebrew Hindu Hungarian Indian Irish Italian Japanese Jewish Latin
Mexican Moorish Norman Norwegian Persian Peruvian Polish Portuguese Protestant Prussian Roman
Russian Saxon Scotch Scottish Sicilian Spanish Swedish Swiss Syrian Turkish Venetian Victorian Welsh
"""
ORGANISATION_HEADS = {
    "after a surname": "& Sons|and Company|Brothers|Bank|Mills|Trust|Press|Shipping Company",
    "after a place": """
University|City Council|Athletic|United|Gas Company|Railway|Hospital|Museum|Herald|Chronicle
Cricket Club|Chamber of Commerce|Insurance Company|Rovers
""",
    "before a place": "Bank of|University of|Church of|College of|Society of",
}
ORGANISATIONS = """
Admiralty|Board of Trade|House of Lords|House of Commons|Ministry of Health|Foreign Office
War Office|Royal Society|Home Office|Treasury|Liberal Party|Labour Party|Red Cross|Parliament
Senate|Congress|Privy Council|Ministry of Works|Farmers' Union|Coal Board|National Gallery
Harbour Trust|High Court|Ministry of Trade|Salvation Army|Miners' League|Temperance League
Court of Appeal|Savings Bank
""".strip()
WORKS = """
Book of Sparrows|Hamlet|Grey Lady|Gospel|Koran|Bible|Iliad|Odyssey|Othello|Macbeth|Testament|Aeneid
Lay of the North|Song of Roland|Winter Letters|Merchant's Daughter|Talmud|Faust|Red Gauntlet
"""
EVENTS = """
Derby|Renaissance|Iron Age|Middle Ages|Crusades|Summer Games|Winter Fair|Harvest Cup|Spring Regatta
Reformation|Great Exhibition|Boer War|Crimean War|Silver Jubilee|Carnival
"""
# Words that are no names; some have capitals, as names have.
WORDS = {
    "train": {
        "day": "Monday|Tuesday|Thursday|Saturday|January|March|May|July|September|December",
        "title": "Mr.|Mrs.|Miss|Captain|Lord",
        "role": """
painter|farmer|minister|judge|doctor|goalkeeper|builder|novelist|clerk|soldier|butcher|miner|poet
postman|lawyer|fisherman|nurse|porter|student|widow|tailor|engineer|weaver|governor|pupil|witness
""",
        "thing": """
bridge|treaty|letter|harvest|school|fire|strike|price of wool|new road|hat|market|speech|parcel|boat
garden|lecture|window|debt|song|church bell|storm|roof|money|newspaper|chimney|lamp|horse|dinner
""",
        "adj": """
old|young|tired|angry|careful|silent|poor|famous|foolish|quick|lonely|hungry|rich|lazy|honest|stout
""",
        "did": """
watched|forgot|described|wanted|praised|mended|found|lost|painted|bought|remembered|measured|carried
opened|hated|shared|expected|defended
""",
        "tail": """
with great care|for a long time|in the dark|without a smile|for the third time|as best he could
from the window|in front of the crowd|against all advice|until it was too late|before breakfast
""",
        "opener": """
Yesterday|However|Later|Once again|After the storm|In spite of this|Meanwhile|For years|Perhaps
Somewhere in the crowd|Without much hope|Each evening|Nothing happened , but|When it was over ,
""",
    },
    "dev": {
        "day": "Sunday|April|October",
        "title": "Mr.|Doctor|Sir",
        "role": "sailor|banker|teacher|driver|librarian|hunter",
        "thing": "tunnel|library|cargo|frost|rumour|piano",
        "adj": "gentle|stubborn|weary|cheerful",
        "did": "noticed|repaired|avoided|ordered",
        "tail": "at once|with a sigh|for nothing|behind the house",
        "opener": "Afterwards|At last|Early that morning|Indeed|By then",
    },
    "test": {
        "day": "Monday|Wednesday|Friday|February|May|June|August|November",
        "title": "Mr.|Mrs.|Miss|Captain|Lord|Colonel|Lady",
        "role": "surgeon|carpenter|gardener|violinist|bishop|chemist|shepherd|doctor|clerk|farmer",
        "thing": "lighthouse|accident|will|concert|orchard|quarrel|price of tea|letter|boat|school",
        "adj": "proud|clumsy|faithful|impatient|old|young|angry",
        "did": "examined|admired|concealed|purchased|wanted|found|lost",
        "tail": "by candlelight|with evident pleasure|once more|in the next room|half asleep",
        "opener": "Presently|Nevertheless|Before dawn|Unfortunately|However|Meanwhile|Later",
    },
}

# Frames; {any} takes a person, a place or an organisation, so that only the name itself can tell.
SHARED_FRAMES = """
{opener} the {adj} {role} {did} the {thing} {tail} .
The {role} {did} the {thing} and the {adj} {role} did not .
A {adj} {role} {did} {any} {tail} .
{person} {did} the {thing} {tail} .
{opener} {any} {did} nothing .
{any} was on everybody's mind .
Nobody had a good word for {any} .
The first page was about {any} and {any} .
We have heard nothing from {any} since {day} .
{opener} , {any} was mentioned twice .
There is no doubt that {any} has changed .
{person} was born in {place} .
{person} and {person} were married in {place} .
{organisation} said it would close its office in {place} .
{person} , a {role} from {place} , won the prize .
The {people} {role} did not answer .
He spoke {people} with {person} .
{opener} the {role} went home and slept .
{place} {number} , {place} {number}
{title} {surname} spoke about the {thing} at {organisation} .
{opener} , {title} {surname} denied the report .
{organisation} and {organisation} will share the cost of the {thing} .
It was a cold {day} and the {thing} could wait .
The {thing} was the talk of {place} .
They read the {work} aloud .
Since the {event} , {place} has been poor .
{any} again !
The answer , of course , was {any} .
{opener} the letter came , and it was from {any} .
I never liked {any} .
{any} and {any} , {any} and {any} : it was always the same .
Everything depends upon {any} .
What can be done about {any} ?
"""
TRAIN_FRAMES = """
The {adj} {thing} and the {adj} {thing} were gone .
It was a {adj} {role} who {did} it {tail} .
{opener} a {role} {did} the {thing} in {place} .
"Was it the {role} or the {thing} ? " asked the {adj} {role} .
The {thing} was finished in {day} , said {person} .
{first} laughed , and {first} did not .
{place} beat {place} by {number} goals on {day} .
{opener} the rain stopped , and the {role} looked at the {thing} .
{people} and {people} officials met in {place} .
{person} joined {organisation} in {day} .
The {role} of {organisation} , {person} , resigned .
Shares of {organisation} fell {number} pence .
Ships from {place} were late .
{surname} was fined {number} pounds in {day} .
For {any} , the {thing} came too late .
The {role} dreamt of {any} .
They had all read about {any} in the newspaper .
The {people} team lost to {place} .
My dear {first} , the {thing} is safe .
A {role} was seen near {place} .
{person} ( {place} ) {number}
The {event} was a great day for {person} .
A copy of the {work} lay on the table .
{opener} there was nothing in the house but a {thing} .
Police in {place} questioned a {people} {role} about the {thing} .
I bought it from {organisation} .
"""
TEST_FRAMES = """
"{any} , " she repeated , "and what of it ? "
Ask {any} .
Had it not been for {any} , the {thing} would have been forgotten .
It was {any} that frightened the {role} .
You may thank {any} for that .
Between {any} and {any} there was little to choose .
On {day} the {role} came back from {place} without a word .
{first} , {first} and the {role} walked as far as {place} .
The {thing} , according to {organisation} , was no accident .
{people} wine is dearer in {place} than in {place} .
{surname} 's {thing} stood empty until {day} .
No {role} in {place} had ever seen such a {thing} .
{opener} , neither {surname} nor {surname} believed the {people} {role} .
Some praised the {work} ; others preferred the {event} .
At the {event} , {any} met {any} .
Letters to {any} were returned unopened .
Such , alas , is {any} .
Good night , {first} .
Three {people} soldiers and a {role} were drowned off {place} .
{organisation} has appointed {person} , formerly of {organisation} .
The road to {place} runs past the {thing} .
Great heavens , it is {first} {surname} !
Dust , noise and a {role} : nothing else was left .
{place} , {day} {number}
"""
TYPES = {
    "person": "PER",
    "first": "PER",
    "surname": "PER",
    "place": "LOC",
    "organisation": "ORG",
    "people": "MISC",
    "work": "MISC",
    "event": "MISC",
}
Tagged = list[tuple[str, str]]


def names_of(split: str) -> dict[str, list[str]]:
    """Of every list of names those that this file may use."""
    lists = {
        "first": FIRST_NAMES.split(),
        "surname": SURNAMES.split(),
        "place": parts(PLACES),
        "people": PEOPLES.split(),
        "organisation": parts(ORGANISATIONS),
        "work": parts(WORKS),
        "event": parts(EVENTS),
    }
    # Each name goes to one file, in whichever lists it stands.
    names = sorted({name for names in lists.values() for name in names})
    files = random.Random("ner").choices(list(SHARES), list(SHARES.values()), k=len(names))
    file_of = dict(zip(names, files, strict=True))
    return {kind: [n for n in names if file_of[n] == split] for kind, names in lists.items()}


class Writer:
    """Makes the sentences of one file."""

    def __init__(self, split: str) -> None:
        self.split = split
        self.rng = random.Random(f"ner {split}")
        self.names = names_of(split)
        self.own_frames = parts(TEST_FRAMES if split == "test" else TRAIN_FRAMES)

    def name(self, kind: str) -> tuple[str, str]:
        """A name of this kind, and its type."""
        names, rng = self.names, self.rng
        if kind == "any":
            kind = rng.choice(["person", "first", "surname", "place", "place", "organisation"])
        if kind == "person":
            first = rng.choice(names["first"])
            if rng.random() < 0.2:
                first = f"{rng.choice('ABCDEFGHJKLMRSTW')}."
            return f"{first} {rng.choice(names['surname'])}", TYPES[kind]
        if kind == "organisation":
            form = rng.choice([*ORGANISATION_HEADS, "alone", "alone"])
            if form == "alone":
                return rng.choice(names["organisation"]), TYPES[kind]
            head = rng.choice(parts(ORGANISATION_HEADS[form]))
            if form == "after a surname":
                return f"{rng.choice(names['surname'])} {head}", TYPES[kind]
            place = rng.choice(names["place"])
            name = f"{head} {place}" if form == "before a place" else f"{place} {head}"
            return name, TYPES[kind]
        return rng.choice(names[kind]), TYPES[kind]

    def word(self, kind: str) -> str:
        """A word that is no name."""
        if kind == "number":
            return str(self.rng.randint(2, 90))
        return self.rng.choice(parts(WORDS[self.split][kind]))

    def sentence(self) -> Tagged:
        """Words with their tags in IOB1."""
        result: Tagged = []
        previous = ""
        frames = self.own_frames if self.rng.random() < OWN_FRAMES else parts(SHARED_FRAMES)
        for part in self.rng.choice(frames).replace('"', ' " ').split():
            kind = part.strip("{}")
            entity = ""
            if kind == part:
                words = [part]
            elif kind in TYPES or kind == "any":
                text, entity = self.name(kind)
                words = text.split()
            else:
                words = self.word(kind).split()
            for position, text in enumerate(words):
                starts_after_same = position == 0 and entity == previous
                tag = f"{'B' if starts_after_same else 'I'}-{entity}" if entity else "O"
                result.append((text, tag))
            previous = entity
        first, tag = result[0]
        result[0] = (first[0].upper() + first[1:], tag)
        return result

    def headline(self, sentence: Tagged) -> Tagged:
        """The same in capitals."""
        return [(word.upper(), tag) for word, tag in sentence]

    def lines(self) -> Iterator[str]:
        """The file, line by line."""
        seen = set()
        while len(seen) < SIZES[self.split]:
            sentence = self.sentence()
            text = " ".join(word for word, _ in sentence)
            if text in seen:
                continue
            if len(seen) % SENTENCES_PER_DOCUMENT == 0:
                yield "-DOCSTART- -X- O O"
                yield ""
                if len(sentence) < 12:
                    sentence = self.headline(sentence)
            seen.add(text)
            for word, tag in sentence:
                yield f"{word} -X- O {tag}"
            yield ""


def make() -> dict[str, str]:
    """File names and what is in the files."""
    return {f"{split}.txt": "\n".join(Writer(split).lines()) + "\n" for split in SIZES}


if __name__ == "__main__":
    for name, text in make().items():
        (Path(__file__).parent / name).write_text(text, encoding="utf-8")
