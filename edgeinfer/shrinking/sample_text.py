"""A short text with a bit of everything, to measure on where nobody gives a better one.

Written for edgeinfer: stories, explanations, talk, letters, code, data and some languages, since
what a model loses depends on what it reads.
"""

SAMPLE_NAME = "edgeinfer's sample text"

SAMPLE_TEXT = '''\
The ferry had been late every day that week, and nobody on the quay pretended to be surprised any
more. Marta sat on her suitcase and counted the gulls on the roof of the customs house. There were
eleven, then nine, then eleven again. Behind her a boy was explaining to his grandmother how a
diesel engine works, and getting most of it right.

"So the spark comes last," the grandmother said.

"There is no spark. That is the whole point. The air gets so hot from being squeezed that the fuel
burns by itself as soon as it is let in."

"In my day things had sparks."

When the ship finally came round the breakwater it was without its usual noise, drifting almost
sideways, and a man in an orange vest ran along the edge of the quay shouting numbers at someone
they could not see. Marta picked up her suitcase. She had promised to be in Bergen by Thursday,
and it was already Wednesday evening; but the light on the water was so clear and so yellow that
she found she did not mind, and she stood there with the others and watched the ropes fly out,
fall short, and fly out again.

How does a refrigerator make cold?

It does not make cold; it carries heat from the inside to the outside. A liquid that boils easily
runs through a narrow valve into the coils behind the wall of the cabinet, where the pressure is
low. There it evaporates, and evaporation takes heat from whatever is near. A compressor then
sucks the vapour away and squeezes it into the black grille at the back. Under pressure the vapour
becomes warm, gives its heat to the air of the kitchen, and turns liquid again. The room therefore
gets a little warmer than it was: about three units of heat are moved for each unit of electrical
energy, and all of it ends up behind the machine. This is why an open refrigerator cannot cool a
room.

Three things follow that are useful to know. First, frost on the coils slows the flow of heat, so
an iced-up freezer costs more to run. Second, the grille needs air; a refrigerator pushed against
the wall works longer for the same result. Third, putting warm food inside is not dangerous for
the machine, only wasteful, because every joule in the soup must be pumped out again.

def merge_intervals(intervals):
    """Join intervals that overlap or touch; the result is sorted."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


class Account:
    def __init__(self, owner: str, balance: int = 0) -> None:
        self.owner = owner
        self.balance = balance

    def withdraw(self, amount: int) -> None:
        if amount <= 0:
            raise ValueError("the amount must be positive")
        if amount > self.balance:
            raise ValueError(f"only {self.balance} left in the account of {self.owner}")
        self.balance -= amount


assert merge_intervals([(5, 8), (1, 3), (2, 4)]) == [(1, 4), (5, 8)]

The loop above visits each interval once. Sorting costs O(n log n), and since the intervals are
ordered by where they begin, a new one can only overlap the last one that was kept. If the input is
sorted already, the function takes linear time.

SELECT c.name, COUNT(o.id) AS orders, SUM(o.total) AS revenue
FROM customers AS c
LEFT JOIN orders AS o ON o.customer_id = c.id AND o.created_at >= '2024-01-01'
GROUP BY c.name
HAVING COUNT(o.id) > 2
ORDER BY revenue DESC
LIMIT 10;

{"id": 4172, "name": "Desk lamp", "price": 34.9, "tags": ["light", "office"], "stock": {"Lyon": 12,
"Turin": 0}, "discontinued": false, "dimensions_cm": [18, 18, 46]}

User: I have 250 g of flour, two eggs and half a litre of milk. What can I cook in twenty minutes?
Assistant: Pancakes. Whisk the eggs with the milk and a pinch of salt, add the flour bit by bit
until the batter runs off the spoon like cream, and let it stand while the pan gets hot. Fry each
one in a little butter for about a minute a side. With these amounts you get eight to ten.
User: And if there is no butter?
Assistant: Any oil that can stand the heat will do: sunflower, rapeseed, even mild olive oil. Use
half a teaspoon a pancake and wipe the pan with a paper towel, so that it is coated and not
swimming.
User: How many calories is one of them, roughly?
Assistant: About 120. The flour brings 870, the eggs 150 and the milk 320, which makes 1,340 in
all; divided by ten that is 134 each with the oil, and a little less if you make them thin.

Dear Mr Okafor,

thank you for your letter of 3 March. We have looked into the delay of your order (number
88-20417) and found that the second parcel was returned to our warehouse because the house number
was missing on the label. It will be sent again tomorrow by express, at our cost. I am sorry for
the trouble this has caused you, and I have credited the shipping charges of 7.50 euros to your
account.

Yours sincerely,
Ingrid Solberg
Customer Service

The committee met for the fourth time on Tuesday. Of the nineteen members, fourteen were present.
The treasurer reported that the repair of the roof had cost 12 percent less than expected, chiefly
because the old beams turned out to be sound; the remaining sum, a little over forty thousand, was
to be put aside for the heating. A proposal to open the reading room on Sundays was discussed at
length and rejected by eight votes to six. Several speakers pointed out that the staff had not
been asked.

Let f(x) = x^3 - 3x + 1. Its derivative is f'(x) = 3x^2 - 3 = 3(x - 1)(x + 1), which is zero at x
= -1 and x = 1. Since f(-1) = 3 > 0 and f(1) = -1 < 0, while f tends to minus infinity on the left
and to plus infinity on the right, the polynomial has exactly three real roots: one below -1, one
between -1 and 1, and one above 1. By the intermediate value theorem each can be enclosed as
tightly as we like; for instance f(0.3) = 0.127 and f(0.4) = -0.136, so the middle one lies
between 0.3 and 0.4.

1. The Amazon carries more water to the sea than the next seven largest rivers together.
2. Copper was among the first metals that people smelted; with tin it makes bronze.
3. The Peace of Westphalia in 1648 ended the Thirty Years' War.
4. Sound travels about four times faster in water than in air.
5. An octopus has three hearts, two of which stop beating when it swims.

Am Morgen lag Schnee auf den Feldern, und die Straße ins Dorf war kaum noch zu erkennen. Der Lehrer
kam zu Fuß, eine halbe Stunde zu spät, mit nassen Schuhen und einem Korb voller Äpfel, den ihm
jemand unterwegs geschenkt hatte. Niemand fragte, von wem.

Le lendemain, il fallut bien admettre que la machine ne marchait plus. On appela le mécanicien, qui
l'écouta longuement, comme un médecin, puis déclara qu'il n'y avait rien à faire avant lundi. « Et
d'ici là ? » demanda la directrice. Il haussa les épaules et demanda s'il restait du café.

La biblioteca cerraba a las ocho, pero el guardia conocía a los estudiantes y los dejaba quedarse
hasta que terminaban el capítulo. En invierno les llevaba té; en verano abría las ventanas que daban
al patio, donde a veces alguien tocaba la guitarra.

昨天下午下了一场大雨，街上的人都跑到屋檐下躲雨。卖水果的老人没有走，他把伞借给了一个孩子，自己站在雨里笑。

Why did the old clock lose time in summer? Because its pendulum was made of brass, and brass grows
when it is warm. A longer pendulum swings more slowly: the period is two pi times the square root
of the length over the acceleration of gravity. If the length grows by one part in ten thousand,
the clock loses about four seconds a day. Clockmakers found several ways around this. Some hung a
jar of mercury at the end of the rod, so that the mercury rose as the rod sank, and the centre of
mass stayed where it was. Others built a grid of two metals whose growth cancels out. In the end
an alloy was found that hardly grows at all, and the trick became unnecessary; the clocks that
were built with it kept time to a second in a week, and astronomers set their instruments by them.

"You never told me you could sing," said the inspector.

"You never asked," said the witness, "and besides, it was not singing. I was calling the dog."

He wrote that down. Outside it had begun to rain, and the window, which did not close properly,
let in a smell of wet leaves. On the desk between them lay the photograph, the glove, and the key
that fitted no lock in the house. He turned the photograph around so that she could see it.

"Then tell me," he said, "where the dog is now."

$ git log --oneline | head -3
4f1c9ae parser: keep the comments that stand behind a value
b07d221 tests: an empty file is a valid document
9e2a6d0 docs: say what happens to duplicate keys
$ make test
41 passed, 1 skipped in 2.31s

Stars do not burn as wood does. In their centre, under the weight of everything above, nuclei of
hydrogen come so close that they join to helium, and a little of their mass is set free as light.
The light needs thousands of years to find its way out, because it is absorbed and sent off again
in another direction at every step; only at the surface is the way free. From there it takes eight
minutes to reach us. If the fusion in the sun stopped today, nobody would notice for a very long
time. '''
