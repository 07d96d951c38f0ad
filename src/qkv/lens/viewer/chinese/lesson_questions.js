// The questions of a lesson in Chinese, by their English.

export const LESSON_QUESTIONS = {
  "Your turn": "该你了",
  "Check": "检查",
  "Hint": "提示",
  "Show": "看答案",
  "Right!": "答对了！",
  "Right, well done.": "对了，很好。",
  "This is the answer.": "答案是这样。",
  "Not this one. Try another, or take the hint.": "不是这个。换一个试试，或者看看提示。",
  "Not yet: it is larger. Try again.": "还差一点：应该更大。再试试。",
  "Not yet: it is smaller. Try again.": "还差一点：应该更小。再试试。",
  "The number is right, but look at the sign.": "数对了，再看看正负号。",
  "Type a number, such as 0.5 or −1.2.": "请输入一个数，比如 0.5 或 −1.2。",
  "± {tolerance} is near enough": "误差不超过 {tolerance} 就算对",

  "Suppose “{token}” stands twice in a sentence. Is its x the same both times?": "假如“{token}”在一个句子里出现两次，两次的 x 一样吗？",
  "Yes, it is the same word": "一样，是同一个词",
  "No, since the positions differ": "不一样，位置不同",
  "e is the same both times. What is added to it?": "两次的 e 是一样的。还加上了什么？",
  "e is the same, and the vector p of the position differs: so x differs.": "e 相同，但位置编码 p 不同，所以 x 也不同。",
  "The first number of x is the sum of {a} and {b}. What is it?": "x 的第一个数是 {a} 与 {b} 的和。它是多少？",
  "A negative number makes the sum smaller.": "加上负数，和会变小。",
  "{a} + {b} = {x}: each number of p is added to its number of the vector.": "{a} + {b} = {x}：p 的每个数都加到向量对应的数上。",
  "Where do you think the order of the words enters this model?": "你觉得词的顺序是在哪里进入这个模型的？",
  "here: a vector for the position is added": "就在这里：加上一个代表位置的向量",
  "later: queries and keys will be rotated by angles that grow with the position": "在后面：查询和键会旋转，位置越靠后，转的角度越大",
  "later: the distance between two tokens will change their score": "在后面：两个词元之间的距离会改变它们的分数",
  "by reading one token after the other: the state knows the order": "靠一个接一个地读：状态知道先后顺序",
  "nowhere: the model only knows which tokens come before": "哪里也没有：模型只知道哪些词元在前面",
  "Look at the picture: nothing is added to e that depends on the position.": "看看图：e 上面没有加任何和位置有关的东西。",
  "Models differ in this. This one brings in the order in a way of its own, without a vector that is added.":
    "各种模型的做法不同。这个模型不加位置向量，而是用自己的办法处理顺序。",

  "The vector has {width} numbers, and {heads} heads share the work equally. How many numbers has one query?":
    "向量有 {width} 个数，由 {heads} 个头平分。一个查询有多少个数？",
  "Divide.": "用除法。",
  "{width} / {heads} = {d}.": "{width} ÷ {heads} = {d}。",
  "With what will the query be compared, to find out where to look?": "要知道该看哪里，查询应该和什么比较？",
  "With the keys": "和键比较",
  "With the values": "和值比较",
  "With the other queries": "和别的查询比较",
  "Think of a search in a library: what you look for is compared with what stands on the backs of the books.":
    "想想在图书馆找书：你要找的内容，会和书脊上的字相比。",
  "The query is compared with each key. The values are what is taken home, in step 4.": "查询和每个键比较。值是第 4 步才“借回家”的内容。",
  "Comparing means multiplying number by number. Number {n} of q is {a}, and number {n} of the k of “{token}” is {b}. What is their product?":
    "比较就是逐个数相乘。q 的第 {n} 个数是 {a}，“{token}”的 k 的第 {n} 个数是 {b}。它们的乘积是多少？",
  "Two numbers with the same sign have a positive product: they agree.": "同号的两个数相乘是正数：它们意见一致。",
  "{a} · {b} = {x}. All {count} products are added, which is the next step.": "{a} × {b} = {x}。{count} 个乘积全部加起来，就是下一步。",

  "The score of “{token}” is {score}. Divided by √d = {root}, what is it?": "“{token}”的分数是 {score}。除以 √d = {root}，得多少？",
  "Round √d first, and you can do it in your head.": "先把 √d 取整，心算就行。",
  "{score} / {root} = {x}.": "{score} ÷ {root} = {x}。",
  "Which of these tokens does the mask hide from this one?": "下面哪个词元被掩码遮住了？",
  "A model that writes must not see what it has yet to write.": "写作的模型不能偷看还没写出来的内容。",
  "It lies far away in the text.": "它在文中离得很远。",
  "“{token}” comes later, so it is hidden.": "“{token}”在后面，所以被遮住了。",
  "“{token}” is hidden by the model's attention pattern.": "按这个模型的注意力模式，“{token}”被遮住了。",
  "Which token will have the largest weight?": "哪个词元的权重会最大？",
  "The softmax keeps the order: look for the largest score.": "softmax 不改变大小顺序：找分数最大的那个。",
  "“{token}” has the largest score, and gets {weight} of the attention.": "“{token}”的分数最大，得到 {weight} 的注意力。",
  "For the largest score, e^(s − max) is 1, and all tokens together have {total}. What is the largest weight?":
    "分数最大的那个，e^(s − max) 是 1；所有词元加起来是 {total}。最大的权重是多少？",
  "Divide 1 by the sum of all.": "用 1 除以总和。",
  "1 / {total} = {x}: about {share} of the attention.": "1 ÷ {total} = {x}：大约 {share} 的注意力。",

  "Add the first numbers of the rows: {total} = ?": "把各行的第一个数加起来：{total} = ？",
  "The first number of z is the sum of the first column.": "z 的第一个数就是第一列的和。",
  "{total} = {x}.": "{total} = {x}。",
  "{heads} heads with {width} numbers each are put side by side. How many numbers are that?":
    "{heads} 个头，每个头 {width} 个数，并排接起来一共有多少个数？",
  "Multiply.": "用乘法。",
  "{heads} · {width} = {x}.": "{heads} × {width} = {x}。",
  "The first number of x is {a}, that of o is {b}. What is their sum?": "x 的第一个数是 {a}，o 的第一个数是 {b}。它们的和是多少？",
  "Just add; watch the sign.": "直接相加，注意正负号。",
  "{a} + {b} = {x}.": "{a} + {b} = {x}。",

  "What share of the {count} units do you expect above 0?": "你猜 {count} 个单元里有多大比例大于 0？",
  "Each unit looks for a pattern of its own. Will most of them find it in one token?": "每个单元找的是不同的特征。一个词元里，大多数单元都能找到吗？",
  "{share} of the units are above 0 here.": "这里有 {share} 的单元大于 0。",
  "The model has written “{text}” so far. Which token will it find most probable next?": "模型已经写了“{text}”。它会觉得接下来哪个词元的概率最大？",
  "The text so far is “{text}”. Which token will the model find most probable next?": "目前的文字是“{text}”。模型会觉得接下来哪个词元的概率最大？",
  "“{text}”: which token will the model find most probable in the gap?": "“{text}”：模型会觉得空格里哪个词元的概率最大？",
  "Read what there is so far, and go on.": "把已有的部分读一遍，接着往下说。",
  "“{token}”, with a probability of {share}.": "是“{token}”，概率为 {share}。",
  "After which layer will the token that it says in the end be the first choice for the first time?":
    "它最终说出的那个词元，在第几层之后第一次排到第一名？",
  "Early layers mostly know the token itself; later ones know what should come.": "前面的层主要认得词元本身，后面的层才知道接下来该是什么。",
  "“{answer}” is the first choice after layer {layer} for the first time.": "第 {layer} 层之后，“{answer}”第一次排到第一名。",
  "The state comes out of tanh, which squashes every number. Which number can it never exceed?":
    "状态是 tanh 的输出，tanh 会压缩每一个数。它永远不会超过哪个数？",
  "Look at the picture: how large is its largest number?": "看看图：里面最大的数有多大？",
  "tanh brings every number between −1 and 1.": "tanh 把每个数都压到 −1 和 1 之间。",

  "The three largest logits are {a}, {b} and {c}. What will the softmax over all tokens make of them?":
    "最大的三个 logit 是 {a}、{b} 和 {c}。对所有词元做 softmax 之后，它们会变成多少？",
  "e to the power of a number grows fast: a difference of 1 makes it 2.7 times as large. And the other tokens get a share, too.":
    "e 的幂增长得很快：相差 1，就是 2.7 倍。别忘了其他词元也要分走一份。",
  "They become {a}, {b} and {c}; all other tokens share the rest.": "它们变成 {a}、{b} 和 {c}，剩下的由其他词元分。",
  "The largest logit is {difference} above the second. How many times as probable is its token? (e^{n} is about {low}, e^{m} about {high}.)":
    "最大的 logit 比第二大的多 {difference}。它的词元的概率是后者的多少倍？（e^{n} 约为 {low}，e^{m} 约为 {high}。）",
  "It is e to the power of the difference: a number between these two.": "是 e 的“差”次方，在这两个数之间。",
  "e^{difference} = {x}: a difference of logits is a ratio of probabilities.": "e^{difference} = {x}：logit 的差，决定了概率的倍数。",
  "The model gave “{first}” the probability {a}, and “{second}” after it {b}. What is the probability of both?":
    "模型给“{first}”的概率是 {a}，给后面的“{second}”的概率是 {b}。两个词元一起出现的概率是多少？",
  "Multiply the two.": "两个数相乘。",
  "{a} · {b} = {x}. Each further token makes the product smaller.": "{a} × {b} = {x}。每多一个词元，乘积就更小。",
};
